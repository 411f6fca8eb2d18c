#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/base/check.h"
#include "data/files/utf8.h"
#include "data/gguf/gguf_tokenizer.h"
#include "data/gguf/gguf_writer.h"
#include "focus/models/model_export.h"
#include "layers/gguf_settings.h"

namespace focus {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPositions = "position_embd.weight";
constexpr const char* kEmbedding = "token_embd.weight";
constexpr const char* kHead = "output.weight";

/// llama.cpp's number for "mostly of this type" (general.file_type).
std::uint32_t file_type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return 1;
    case Dtype::q8_0:
      return 7;
    case Dtype::bf16:
      return 32;
    default:
      return 0;
  }
}

/// Vectors stay float32, and so do learned positions: llama.cpp adds them as they are.
Dtype dtype_in_file(const std::string& name, const Shape& shape, Dtype wanted) {
  if (shape.rank() == 1 || name == kPositions) return Dtype::f32;
  const bool whole_blocks = shape[1] % block_numbers(wanted) == 0;
  return whole_blocks ? wanted : Dtype::f16;
}

const GgufSource* as_gguf(const ModelFiles& files) {
  return dynamic_cast<const GgufSource*>(files.weights.get());
}

/// Copies keys with that beginning that are not there yet.
void copy_keys(const GgufMetadata& from, const std::string& beginning, GgufKeys& keys) {
  for (const std::string& key : from.keys())
    if (key.starts_with(beginning) && key != "general.alignment" && !keys.has(key))
      keys.copy(from, key);
}

/// The general keys; those of a GGUF base are copied.
void add_general(const ModelFiles& files, Dtype dtype, GgufKeys& keys) {
  keys.text("general.type", "model");
  keys.u32("general.file_type", file_type_of(dtype));
  keys.u32("general.quantization_version", 2);
  if (const GgufSource* source = as_gguf(files)) copy_keys(source->metadata(), "general.", keys);
  if (!keys.has("general.name"))
    keys.text("general.name", replace_invalid_utf8(fs::path(files.where).stem().string()));
}

std::vector<AnnouncedTensor> tensors_of(const ModelConfig& config, Dtype dtype) {
  std::vector<AnnouncedTensor> tensors;
  for (const auto& [name, numbers] : gguf_rope_tensors(config))
    tensors.push_back({name, Shape{static_cast<Index>(numbers.size())}, Dtype::f32});
  for (const auto& [name, shape] : published_shapes(config, TensorNaming::gguf)) {
    tensors.push_back({name, shape, dtype_in_file(name, shape, dtype)});
    if (name == kEmbedding && copies_tied_head(config)) tensors.push_back({kHead, shape, dtype});
  }
  return tensors;
}

/// The largest number whose rounding to `dtype` is one.
double largest_of(Dtype dtype) {
  constexpr double kLargestHalf = 65504;
  if (dtype == Dtype::f16) return kLargestHalf;
  if (dtype == Dtype::q8_0) return 127 * kLargestHalf;
  return std::numeric_limits<float>::max();
}

void check_numbers(const ModelFiles& files, const std::string& name, const Tensor& tensor,
                   Dtype dtype) {
  const double largest = largest_of(dtype);
  const auto beyond = std::ranges::count_if(tensor.span(), [&](Real x) {
    return !(std::abs(static_cast<double>(x)) <= largest);  // NaN too
  });
  if (beyond > 0)
    fail(
        "{}: {} weights of {} are NaN, infinite or outside the range of {}; --dtype bf16 has "
        "float32's range",
        files.where, beyond, name, ggml_type_of(dtype).name);
}

void write_tensors(const ModelFiles& files, Dtype dtype, GgufWriter& writer) {
  for (const auto& [name, factors] : gguf_rope_tensors(files.config)) {
    Tensor tensor({static_cast<Index>(factors.size())});
    std::ranges::copy(factors, tensor.data());
    writer.add(name, tensor);
  }
  Publisher<Tensor> publisher(
      files.config,
      [&](const std::string& name, const Tensor& tensor) {
        check_numbers(files, name, tensor, dtype_in_file(name, tensor.shape(), dtype));
        writer.add(name, tensor);
        if (name == kEmbedding && copies_tied_head(files.config)) writer.add(kHead, tensor);
      },
      TensorNaming::gguf);
  for_each_stored(files.config, *files.weights, [&](const StoredParameter& p) {
    Tensor numbers(p.shape);
    p.read(numbers);
    publisher.add(p.name, to_gguf_order(files.config, p.name, numbers));
  });
}

/// One pair of a GGUF adapter.
struct AdapterPair {
  std::string base;  // the tensor that it is added to
  Tensor a, b;       // [r, in], [out, r]
};

/// q, k and v of a fused module share their A, and their rows of B lie in turn.
AdapterPair adapter_pair(const ModelConfig& config, const PublishedLinear& target,
                         const LoraLinear& lora) {
  AdapterPair pair{gguf_name(config, target.parts[0].name), lora.a.value(),
                   Tensor({target.out(), lora.a.dim(0)})};
  Real* to = pair.b.data();
  for (std::size_t i = 0; i < target.parts.size(); ++i) {
    const Tensor part = to_gguf_order(config, target.parts[i].name, lora.b[i].value());
    to = std::ranges::copy(part.span(), to).out;
  }
  return pair;
}

}  // namespace

GgufWritten write_gguf_model(const fs::path& path, const ModelFiles& files, Dtype dtype,
                             bool own_tokenizer) {
  if (const SavedAdapter* const own = files.attention())
    fail("{}: was trained with {}, which a GGUF file cannot represent{}", files.where, own->name,
         own->kind->role == AdapterRole::focus ? "; write a folder with --out" : "");
  GgufWritten written;
  written.type = ggml_type_of(dtype).name;
  GgufKeys keys;
  written.notices = add_gguf_settings(files.config, files.where, keys);
  add_general(files, dtype, keys);
  const GgufSource* source = as_gguf(files);
  if (own_tokenizer && source != nullptr && source->metadata().has("tokenizer.ggml.model")) {
    copy_keys(source->metadata(), "tokenizer.", keys);
  } else {
    const auto notices =
        add_gguf_tokenizer(files.tokenizer.get(), files.side_files,
                           static_cast<std::int32_t>(files.config.vocab_size), files.where, keys);
    written.notices.insert(written.notices.end(), notices.begin(), notices.end());
  }
  std::vector<AnnouncedTensor> tensors = tensors_of(files.config, dtype);
  const auto narrow = std::ranges::count_if(tensors, [&](const AnnouncedTensor& tensor) {
    return tensor.dtype != dtype && tensor.dtype != Dtype::f32;
  });
  if (narrow > 0)
    written.notices.push_back(
        fmt::format("{} matrices whose rows are not whole blocks of 32 are in F16", narrow));
  for (const AnnouncedTensor& tensor : tensors) written.parameters += tensor.shape.size();
  GgufWriter writer(path, keys, std::move(tensors));
  write_tensors(files, dtype, writer);
  writer.commit([&](const GgufSource& read) {
    check_gguf_settings(files.config, read);
    written.architecture = read.metadata().text("general.architecture").value();
  });
  return written;
}

GgufWritten write_gguf_adapter(const fs::path& path, const LoadedModel& model, Dtype dtype) {
  const LoraModel& lora = *model.lora();
  const ModelConfig& config = model.decoder->config();
  GgufWritten written;
  written.type = ggml_type_of(dtype).name;
  written.architecture = find_family(config.model_type, model.where).gguf.architecture;
  if (written.architecture.empty())
    fail("{}: models of type {} cannot be represented in a GGUF file", model.where,
         config.model_type);
  GgufKeys keys;
  keys.text("general.type", "adapter");
  keys.text("general.architecture", written.architecture);
  keys.text("general.name", replace_invalid_utf8(path.stem().string()));
  keys.u32("general.file_type", file_type_of(dtype));
  keys.text("adapter.type", "lora");
  // llama.cpp scales by alpha / rank.
  keys.f32("adapter.lora.alpha",
           static_cast<float>(lora.config().scaling() * static_cast<double>(lora.config().r)));
  const GgufSource* const base = model.files ? as_gguf(*model.files) : nullptr;
  std::vector<AdapterPair> pairs;
  std::vector<AnnouncedTensor> tensors;
  lora.for_each_linear([&](const PublishedLinear& target, const LoraLinear& linear) {
    const AdapterPair& pair = pairs.emplace_back(adapter_pair(config, target, linear));
    if (base != nullptr && base->find(pair.base) == nullptr)
      fail(
          "{}: it has no tensor {} (q, k and v are fused in it), so an adapter of the LoRA's parts "
          "does not fit; export the base as a GGUF file too, and use that one",
          model.where, pair.base);
    tensors.push_back({pair.base + ".lora_a", pair.a.shape(), dtype});
    tensors.push_back({pair.base + ".lora_b", pair.b.shape(), dtype});
    written.parameters += pair.a.size() + pair.b.size();
  });
  GgufWriter writer(path, keys, std::move(tensors));
  for (const AdapterPair& pair : pairs) {
    writer.add(pair.base + ".lora_a", pair.a);
    writer.add(pair.base + ".lora_b", pair.b);
  }
  writer.commit();
  return written;
}

}  // namespace focus
