#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "data/tensors/store.h"
#include "focus/models/fingerprint.h"

namespace focus {

/// What import's --dtype may say: float32, bf16, f16 and the formats of blocks that numbers can be
/// rounded to.
Dtype import_dtype(std::string_view word);
/// All these words, for --help and for checks.
std::vector<std::string> import_dtypes();

struct ImportedModel {
  ReadModel model;                   // of the numbers that were written
  std::map<std::string, int> types;  // tensors of the store by the type that they have there
  int not_in_blocks = 0;             // matrices that were to be rounded into blocks and were not
};

/// Puts a model's weights into a store, tensor by tensor, under their published names. Without
/// `dtype` in the types that they have: what a GGUF file has in blocks stays in these blocks, rows
/// in Hugging Face's order. With one, all are rounded to it; with blocks, matrices whose rows are
/// whole ones are, and all else becomes float32.
ImportedModel import_weights(const ModelFiles& files, StoreWriter& store,
                             std::optional<Dtype> dtype);

}  // namespace focus
