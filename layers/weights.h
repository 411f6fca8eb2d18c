#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/tensors/tensor_source.h"
#include "layers/decoder.h"
#include "layers/family.h"

namespace focus {

/// A parameter, or a tensor of a file, in the numbers of a file: rows one after the other.
struct PackedTensor {
  Dtype dtype = kRealDtype;
  Shape shape;
  std::vector<std::byte> bytes;
};

/// A parameter as a published checkpoint holds it.
struct StoredParameter {
  std::string name, published;       // ours, and the tensor's that it is, or is a part of
  const TensorInfo* info = nullptr;  // of that tensor
  TensorBytes tensor;                // all of it; nothing of it was read where it is mapped
  Shape shape;                       // ours
  MatrixView numbers;                // of the parameter alone, a vector as a matrix of one column
  Real added = 0;                    // what the stored numbers have more than the parameter's
  bool completes = false;            // it is the last of the tensor's parts

  /// Calls f(numbers) with some rows at a time, in order.
  void for_each_block(const std::function<void(std::span<const Real>)>& f) const;
  /// All of them.
  void read(Tensor& to) const;
  /// The same of what lies in blocks, as it lies but for the order of the rows.
  PackedTensor read_blocks() const;
};

/// Calls f for every parameter of a model, in the order of for_each_parameter, with where it lies
/// in `source`, under the names of the model's family or of GGUF, as the source has them. Throws
/// std::runtime_error naming the tensor where one is missing, has another shape than the config
/// says, is unknown, or does not have the source's checksum; nothing is guessed. Gives memory that
/// f no longer needs back to the system.
void for_each_stored(const ModelConfig& config, const TensorSource& source,
                     const std::function<void(const StoredParameter&)>& f);

/// Whether a source holds an output head of its own beside the embedding, with other numbers,
/// though the config ties the two: transformers does not tie them then.
bool has_other_head(const ModelConfig& config, const TensorSource& source);

/// Fills every parameter from a published checkpoint's tensors; throws as for_each_stored() does.
/// With a precision every matrix becomes a frozen one: with float32 a view of what the source maps,
/// of which nothing is read yet; with bf16 and q8 it is rounded, one after the other, where it is
/// not stored so already, as FrozenMatrix has it, and throws as that does. What is read is held
/// against the source's checksums; what is mapped is not.
void load_weights(Decoder& decoder, const TensorSource& source,
                  std::optional<Precision> frozen = {});

/// A tensor under the name that it has in published files.
using PublishedFunction = std::function<void(const std::string& name, const Tensor& tensor)>;

/// Joins parameters to tensors as files hold them, under the family's names or GGUF's: fused and
/// transposed. A Tensor, or a PackedTensor: one in blocks is always rows, [out, in], though the
/// family's other tensors are transposed; one whose parts have several formats becomes float32.
template <class Stored>
class Publisher {
 public:
  using Function = std::function<void(const std::string& name, const Stored& tensor)>;
  /// `config` must outlive it.
  Publisher(const ModelConfig& config, Function f, TensorNaming naming = TensorNaming::published);
  /// Calls f when all parts of a tensor are there; they come in their order.
  void add(const std::string& name, Stored part);

 private:
  const ModelConfig& config_;
  const Family& family_;
  Function f_;
  TensorNaming naming_;
  std::map<std::string, std::vector<Stored>> pending_;  // parts of tensors that lack others
};

/// The tensors that a Publisher makes of all parameters, in its order: names and shapes.
std::vector<std::pair<std::string, Shape>> published_shapes(
    const ModelConfig& config, TensorNaming naming = TensorNaming::published);

/// Makes every matrix of a decoder that is not trained a frozen one, and gives the memory of its
/// Real numbers back to the system; vectors (norms, biases) stay as they are.
void freeze_matrices(Decoder& decoder, Precision precision);

/// Weight::multiply_in_bf16() for every matrix of a decoder that is to be trained.
void multiply_in_bf16(Decoder& decoder);

/// Calls f(published name, tensor as published: fused and transposed as the family's files are) for
/// every parameter, in the order of the model. `select` says what of a parameter is meant: its
/// value, its gradient.
void for_each_published(Decoder& decoder, const std::function<Tensor(const Variable&)>& select,
                        const PublishedFunction& f);

/// The linears of a decoder's layers as its family publishes them: one module, of which several of
/// ours may be parts (GPT-2's c_attn is q, k and v).
struct PublishedLinear {
  struct Part {
    Linear* linear = nullptr;
    const TensorRule* rule = nullptr;
    std::string name = {};  // of its weight, ours
  };
  std::string name;         // of the module: "transformer.h.0.attn.c_attn"
  bool transposed = false;  // its weight is stored [in, out]
  std::vector<Part> parts;  // in the order of the rule's part numbers

  Index in() const { return parts[0].linear->weight.dim(1); }
  Index out() const;  // of all parts together
};
/// Valid as long as the decoder's layers stay where they are. Embeddings and output head are not
/// among them.
std::vector<PublishedLinear> published_linears(Decoder& decoder);

/// What a tensor of `source` has in the place of a matrix of ours: its rows, as many and in the
/// order of ours, where `rule` is one of GGUF's. Throws std::runtime_error where it has another
/// shape than `ours`, or what ours is a part of, asks for.
Tensor read_gguf_part(const TensorSource& source, const TensorInfo& info, const TensorRule& rule,
                      const ModelConfig& config, const Shape& ours);

/// The part's rows of a module's [out of all parts, width]; the tensor itself where it has one
/// part.
Tensor rows_of_part(const TensorRule& rule, const ModelConfig& config, const Tensor& whole);
/// Writes the part's rows to their places in the module's tensor.
void set_part_rows(const TensorRule& rule, const ModelConfig& config, const Tensor& part,
                   Tensor& whole);

}  // namespace focus
