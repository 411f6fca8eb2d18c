#include "focus/models/model_import.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "autograd/base/check.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/block_rounding.h"

namespace focus {
namespace {

constexpr std::array<std::pair<std::string_view, Dtype>, 3> kWhole = {
    {{"float32", Dtype::f32}, {"bf16", Dtype::bf16}, {"f16", Dtype::f16}}};

/// What a parameter becomes: `wanted`, or without it what it is.
Dtype dtype_for(const StoredParameter& p, std::optional<Dtype> wanted) {
  if (!wanted) return p.added == 0 ? p.info->dtype : Dtype::f32;
  if (!in_blocks(*wanted)) return *wanted;
  const bool whole_blocks = p.shape.rank() == 2 && p.shape[1] % block_numbers(*wanted) == 0;
  return whole_blocks ? *wanted : Dtype::f32;
}

/// pack() on all threads.
PackedTensor packed(const Tensor& numbers, Dtype dtype) {
  PackedTensor to{dtype, numbers.shape(), {}};
  if (!in_blocks(dtype)) {
    pack(numbers.span(), dtype, to.bytes);
    return to;
  }
  const Index rows = numbers.dim(0), cols = numbers.dim(1);
  const std::size_t line = bytes_of(dtype, cols);
  to.bytes.resize(static_cast<std::size_t>(rows) * line);
  parallel_chunks(rows, rows_per_chunk(cols), [&](Index begin, Index end) {
    round_to_blocks(dtype, numbers.data() + begin * cols, (end - begin) * cols,
                    to.bytes.data() + static_cast<std::size_t>(begin) * line);
  });
  return to;
}

class Import {
 public:
  Import(const ModelFiles& files, StoreWriter& store, std::optional<Dtype> dtype)
      : files_(files),
        store_(store),
        dtype_(dtype),
        reading_(files.config),
        publisher_(files.config, [this](const std::string& name, const PackedTensor& tensor) {
          write(name, tensor.shape.dims(), tensor.dtype, tensor.bytes);
        }) {}

  ImportedModel run() {
    for_each_stored(files_.config, *files_.weights, [&](const StoredParameter& p) {
      reading_.begin(p, *files_.weights);
      if (dtype_ || files_.weights->naming() == TensorNaming::gguf) return put(p);
      p.for_each_block([&](std::span<const Real> numbers) { reading_.take(numbers); });
      if (p.completes) write(p.published, p.info->shape, p.info->dtype, p.tensor.bytes);
    });
    imported_.model = reading_.finish();
    return std::move(imported_);
  }

 private:
  void put(const StoredParameter& p) {
    const Dtype dtype = dtype_for(p, dtype_);
    if (dtype == p.info->dtype && in_blocks(dtype)) {
      p.for_each_block([&](std::span<const Real> numbers) { reading_.take(numbers); });
      return publisher_.add(p.name, p.read_blocks());
    }
    Tensor numbers(p.shape);
    p.read(numbers);
    PackedTensor tensor = packed(numbers, dtype);
    reading_.take(to_tensor(tensor.bytes, dtype, p.shape).span());
    publisher_.add(p.name, std::move(tensor));
  }

  void write(const std::string& name, std::span<const Index> shape, Dtype dtype,
             std::span<const std::byte> bytes) {
    store_.tensor_raw(store_path("/model", name), shape, dtype, bytes);
    ++imported_.types[name_of(dtype)];
    if (dtype_ && in_blocks(*dtype_) && !in_blocks(dtype) && shape.size() == 2)
      ++imported_.not_in_blocks;
  }

  const ModelFiles& files_;
  StoreWriter& store_;
  std::optional<Dtype> dtype_;
  ModelReading reading_;
  Publisher<PackedTensor> publisher_;
  ImportedModel imported_;
};

}  // namespace

std::vector<std::string> import_dtypes() {
  std::vector<std::string> words;
  for (const auto& [word, dtype] : kWhole) words.emplace_back(word);
  for (const Dtype dtype : kRoundedFormats) words.emplace_back(name_of(dtype));
  return words;
}

Dtype import_dtype(std::string_view word) {
  for (const auto& [name, dtype] : kWhole)
    if (name == word) return dtype;
  const Dtype dtype = format_named(word);
  check(can_round_to(dtype), "dtype {}: expected one of {}", word,
        fmt::join(import_dtypes(), ", "));
  return dtype;
}

ImportedModel import_weights(const ModelFiles& files, StoreWriter& store,
                             std::optional<Dtype> dtype) {
  return Import(files, store, dtype).run();
}

}  // namespace focus
