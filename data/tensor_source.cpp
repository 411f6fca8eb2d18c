#include "data/tensor_source.h"

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "autograd/check.h"
#include "data/json_reader.h"

namespace focus {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read without byte swapping");

struct Row {
  Dtype dtype;
  const char* name;
  std::size_t bytes;
};
constexpr std::array<Row, 5> kDtypes = {{{Dtype::f32, "f32", 4},
                                         {Dtype::f16, "f16", 2},
                                         {Dtype::bf16, "bf16", 2},
                                         {Dtype::f64, "f64", 8},
                                         {Dtype::other, "other", 0}}};

const Row& row_of(Dtype dtype) {
  return *std::find_if(kDtypes.begin(), kDtypes.end(),
                       [&](const Row& r) { return r.dtype == dtype; });
}

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

}  // namespace

const char* dtype_name(Dtype dtype) { return row_of(dtype).name; }

std::size_t dtype_bytes(Dtype dtype) { return row_of(dtype).bytes; }

Dtype dtype_from_name(std::string_view name) {
  const auto row =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Row& r) { return r.name == name; });
  return row == kDtypes.end() ? Dtype::other : row->dtype;
}

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

Tensor TensorSource::read(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr)
    fail("{}: there is no tensor '{}'; look at its list of tensors", describe(), name);
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
  std::vector<std::byte> bytes;
  read_raw(name, bytes);
  return to_tensor(bytes, info->dtype, Shape(std::span<const Index>(info->shape)));
}

Tensor to_tensor(std::span<const std::byte> bytes, Dtype dtype, const Shape& shape) {
  check(dtype != Dtype::other &&
            bytes.size() == dtype_bytes(dtype) * static_cast<std::size_t>(shape.size()),
        "to_tensor: {} of {} does not fit {} bytes", shape, dtype_name(dtype), bytes.size());
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
    case Dtype::other:
      break;
  }
  return out;
}

NonFinite count_nonfinite(const TensorSource& source) {
  NonFinite found;
  for (const TensorInfo& info : source.tensors()) {
    if (info.dtype == Dtype::other || info.shape.size() > 5) continue;
    const Tensor tensor = source.read(info.name);
    const auto count = std::count_if(tensor.span().begin(), tensor.span().end(),
                                     [](Real value) { return !std::isfinite(value); });
    if (count > 0 && found.count == 0) found.first = info.name;
    found.count += count;
  }
  return found;
}

}  // namespace focus
