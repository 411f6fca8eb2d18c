#pragma once

#include <cstdlib>
#include <string>

#include "autograd/base/check.h"

namespace focus::simd {

/// The kernels of `list` (all that this machine can run) that are called `name`. Throws
/// std::runtime_error where there are none, with the environment variable that asked for them.
template <class List>
auto& named_kernels(const List& list, const std::string& name, const char* variable) {
  std::string names;
  for (int i = 0; i < list.count; ++i) {
    if (list.items[i]->name == name) return *list.items[i];
    names += (i > 0 ? ", " : "") + std::string(list.items[i]->name);
  }
  fail("{} is \"{}\", but this machine can run {}: choose one of these, or unset it", variable,
       name, names);
}

/// Those that the environment variable names, else the first.
template <class List>
auto& chosen_kernels(const List& list, const char* variable) {
  const char* const name = std::getenv(variable);
  return name == nullptr ? *list.items[0] : named_kernels(list, name, variable);
}

}  // namespace focus::simd
