#pragma once

#include <functional>
#include <string>

#include "data/tensor_source.h"
#include "layers/decoder.h"

namespace focus {

/// Fills every parameter from a published checkpoint's tensors, under the names of the model's
/// family. Throws std::runtime_error naming the tensor where one is missing, has another shape
/// than the config says, or is unknown; nothing is guessed. `loaded`, where given, is called with
/// each parameter and its name as soon as it is filled, in the order of for_each_parameter.
void load_weights(Decoder& decoder, const TensorSource& source,
                  const std::function<void(const std::string&, Variable&)>& loaded = {});

/// Stores a frozen parameter in bf16 where it is a matrix, and gives its float copy back to the
/// system; vectors (norms, biases) stay as they are.
void store_in_bf16(Variable& parameter);
/// All of a frozen decoder's parameters.
void store_in_bf16(Decoder& decoder);

/// Calls f(published name, tensor as published: fused and transposed as the family's files are) for
/// every parameter, in the order of the model. `select` says what of a parameter is meant: its
/// value, its gradient.
void for_each_published(Decoder& decoder, const std::function<Tensor(const Variable&)>& select,
                        const std::function<void(const std::string&, const Tensor&)>& f);

}  // namespace focus
