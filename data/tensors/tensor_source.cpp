#include "data/tensors/tensor_source.h"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "autograd/base/check.h"
#include "autograd/gemm/block_formats.h"
#include "autograd/gemm/block_rounding.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read without byte swapping");

/// Converts packed numbers; the bytes need no alignment.
template <class Stored>
void convert(std::span<const std::byte> bytes, Tensor& out) {
  const std::byte* from = bytes.data();
  for (Real& to : out.span()) {
    Stored value;
    std::memcpy(static_cast<void*>(&value), from, sizeof(value));
    to = static_cast<Real>(value);
    from += sizeof(value);
  }
}

template <class Stored>
void narrow(std::span<const Real> numbers, std::vector<std::byte>& bytes) {
  bytes.resize(numbers.size() * sizeof(Stored));
  std::byte* to = bytes.data();
  for (const Real number : numbers) {
    const Stored value = static_cast<Stored>(number);
    std::memcpy(to, static_cast<const void*>(&value), sizeof(value));
    to += sizeof(value);
  }
}

template <class Stored>
void round_each(std::span<Real> numbers) {
  for (Real& number : numbers) number = static_cast<Real>(static_cast<Stored>(number));
}

}  // namespace

Index TensorInfo::size() const {
  Index size = 1;
  for (const Index dim : shape) size *= dim;
  return size;
}

const TensorInfo* TensorSource::find(std::string_view name) const {
  const std::vector<TensorInfo>& all = tensors();
  const auto it =
      std::lower_bound(all.begin(), all.end(), name,
                       [](const TensorInfo& info, std::string_view n) { return info.name < n; });
  return it != all.end() && it->name == name ? &*it : nullptr;
}

const TensorInfo& TensorSource::find_numbers(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr)
    fail("{}: there is no tensor '{}'; check its list of tensors", describe(), name);
  if (info->dtype == Dtype::other) {
    fail(
        "{}: tensor '{}' is stored as {}, which cannot be read as weights; convert it to F32, F16 "
        "or BF16",
        describe(), shown(name), shown(info->stored_as));
  }
  if (info->shape.size() > 5) {
    fail("{}: tensor '{}' has {} dimensions; at most 5 can be read", describe(), shown(name),
         info->shape.size());
  }
  return *info;
}

Tensor TensorSource::read(std::string_view name) const {
  const TensorInfo& info = find_numbers(name);
  const Shape shape{std::span<const Index>(info.shape)};
  if (info.dtype == kRealDtype) {
    Tensor tensor(shape);
    read_into(name, std::as_writable_bytes(tensor.span()));
    return tensor;
  }
  std::vector<std::byte> bytes;
  read_raw(name, bytes);
  return to_tensor(bytes, info.dtype, shape);
}

TensorBytes TensorSource::bytes(std::string_view name) const {
  const TensorInfo& info = find_numbers(name);
  const std::size_t size = bytes_of(info.dtype, info.size());
  if (auto mapped = map(name)) {
    check(
        mapped->bytes.size() == size &&
            reinterpret_cast<std::uintptr_t>(mapped->bytes.data()) % alignment_of(info.dtype) == 0,
        "{}: tensor '{}' is mapped incorrectly", describe(), name);
    return *std::move(mapped);
  }
  const std::shared_ptr<void> owned = pooled_buffer(size);
  const std::span<std::byte> all(static_cast<std::byte*>(owned.get()), size);
  read_into(name, all);
  return {all, owned};
}

void TensorSource::read_into(std::string_view name, std::span<std::byte> out) const {
  std::vector<std::byte> bytes;
  read_raw(name, bytes);
  check(bytes.size() == out.size(), "{}: tensor '{}' has {} bytes, not {}", describe(), name,
        bytes.size(), out.size());
  std::ranges::copy(bytes, out.begin());
}

Tensor to_tensor(std::span<const std::byte> bytes, Dtype dtype, const Shape& shape) {
  check(dtype != Dtype::other && bytes.size() == bytes_of(dtype, shape.size()),
        "to_tensor: {} of {} does not fit {} bytes", shape, name_of(dtype), bytes.size());
  Tensor out(shape);
  switch (dtype) {
    case Dtype::f32:
      convert<float>(bytes, out);
      break;
    case Dtype::f64:
      convert<double>(bytes, out);
      break;
    case Dtype::f16:
      convert<Eigen::half>(bytes, out);
      break;
    case Dtype::bf16:
      convert<Eigen::bfloat16>(bytes, out);
      break;
    default:
      widen_blocks(dtype, bytes.data(), 0, out.size(), out.data());
  }
  return out;
}

void pack(std::span<const Real> numbers, Dtype dtype, std::vector<std::byte>& bytes) {
  if (in_blocks(dtype)) {
    const auto count = static_cast<Index>(numbers.size());
    bytes.resize(bytes_of(dtype, count));
    round_to_blocks(dtype, numbers.data(), count, bytes.data());
    return;
  }
  check(dtype != Dtype::other, "pack: {} is not a weight type", name_of(dtype));
  if (dtype == Dtype::f32) narrow<float>(numbers, bytes);
  if (dtype == Dtype::f64) narrow<double>(numbers, bytes);
  if (dtype == Dtype::f16) narrow<Eigen::half>(numbers, bytes);
  if (dtype == Dtype::bf16) narrow<Eigen::bfloat16>(numbers, bytes);
}

void round_to(Dtype dtype, std::span<Real> numbers) {
  check(dtype != Dtype::other && !in_blocks(dtype), "round_to: {} is not a weight type",
        name_of(dtype));
  if (dtype == Dtype::f32) round_each<float>(numbers);
  if (dtype == Dtype::f16) round_each<Eigen::half>(numbers);
  if (dtype == Dtype::bf16) round_each<Eigen::bfloat16>(numbers);
}

Index count_nonfinite(std::span<const Real> numbers) {
  return static_cast<Index>(
      std::ranges::count_if(numbers, [](Real value) { return !std::isfinite(value); }));
}

Nonfinite nonfinite_of(const TensorSource& source) {
  Nonfinite found;
  for (const TensorInfo& info : source.tensors())
    if (info.dtype != Dtype::other) found.look_at(info.name, source.read(info.name).span());
  return found;
}

void require_finite(std::span<const Real> results, std::string_view where, std::string_view what) {
  if (const Index bad = count_nonfinite(results); bad > 0)
    fail(
        "{}: {} of {} {} are NaN or infinite; either weights of the model or its adapter are too, "
        "which focus info reports, or they overflow: use another copy",
        where, bad, results.size(), what);
}

}  // namespace focus
