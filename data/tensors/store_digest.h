#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "autograd/tensor.h"
#include "data/tensors/store.h"

namespace focus {

/// What a store's root attribute `digest` is made of: one line for every data set (path, type,
/// shape, checksum) and for every attribute, in sorted order. Writer and reader both build it.
class StoreDigest {
 public:
  void add_dataset(std::string_view path, std::string_view type, std::span<const Index> shape,
                   std::string_view checksum);
  void add_attribute(std::string_view object, std::string_view name, const AttributeValue& value);
  std::string hex() const;

 private:
  std::set<std::string> lines_;
};

}  // namespace focus
