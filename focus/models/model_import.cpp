#include "autograd/base/parallel.h"
#include "autograd/gemm/block_formats.h"
#include "focus/models/model_export.h"

namespace focus {
namespace {

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
  to.bytes.resize(rows * line);
  parallel_chunks(rows, rows_per_chunk(cols), [&](Index begin, Index end) {
    round_to_blocks(dtype, numbers.data() + begin * cols, (end - begin) * cols,
                    to.bytes.data() + static_cast<std::size_t>(begin) * line);
  });
  return to;
}

}  // namespace

ImportedModel import_weights(const ModelFiles& files, StoreWriter& store,
                             std::optional<Dtype> dtype) {
  ImportedModel imported;
  ModelReading reading(files.config);
  const auto write = [&](const std::string& name, std::span<const Index> shape, Dtype stored,
                         std::span<const std::byte> bytes) {
    store.tensor_raw(store_path("/model", name), shape, stored, bytes);
    ++imported.types[name_of(stored)];
    if (dtype && in_blocks(*dtype) && !in_blocks(stored) && shape.size() == 2)
      ++imported.not_in_blocks;
  };
  Publisher<PackedTensor> publisher(files.config,
                                    [&](const std::string& name, const PackedTensor& tensor) {
                                      write(name, tensor.shape.dims(), tensor.dtype, tensor.bytes);
                                    });
  const bool as_stored = !dtype && files.weights->naming() != TensorNaming::gguf;
  for_each_stored(files.config, *files.weights, [&](const StoredParameter& p) {
    reading.begin(p);
    const Dtype wanted = as_stored ? p.info->dtype : dtype_for(p, dtype);
    if (as_stored || (wanted == p.info->dtype && in_blocks(wanted))) {
      p.for_each_block([&](std::span<const Real> numbers) { reading.take(numbers); });
      if (!as_stored)
        publisher.add(p.name, p.read_blocks());
      else if (p.completes)
        write(p.published, p.info->shape, p.info->dtype, p.tensor.bytes);
      return;
    }
    Tensor numbers(p.shape);
    p.read(numbers);
    PackedTensor tensor = packed(numbers, wanted);
    reading.take(to_tensor(tensor.bytes, wanted, p.shape).span());
    publisher.add(p.name, std::move(tensor));
  });
  imported.model = reading.finish();
  return imported;
}

}  // namespace focus
