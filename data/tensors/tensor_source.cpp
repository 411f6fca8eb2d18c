#include "data/tensors/tensor_source.h"

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "autograd/base/check.h"
#include "autograd/gemm/block_formats.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read without byte swapping");

/// Calls f with a number of the type that `dtype` stores; false for blocks, and for no weight type.
template <class F>
bool with_type(Dtype dtype, F&& f) {
  if (dtype == Dtype::f32)
    f(float());
  else if (dtype == Dtype::f64)
    f(double());
  else if (dtype == Dtype::f16)
    f(Eigen::half());
  else if (dtype == Dtype::bf16)
    f(Eigen::bfloat16());
  else
    return false;
  return true;
}

}  // namespace

Index TensorInfo::size() const {
  Index size = 1;
  for (const Index dim : shape) size *= dim;
  return size;
}

const TensorInfo* TensorSource::find(std::string_view name) const {
  const auto it = std::ranges::lower_bound(tensors_, name, {}, &TensorInfo::name);
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

void TensorSource::set_tensors(std::vector<TensorInfo> tensors) {
  std::ranges::sort(tensors, {}, &TensorInfo::name);
  tensors_ = std::move(tensors);
}

const TensorInfo& TensorSource::at(std::string_view name) const {
  const TensorInfo* info = find(name);
  if (info == nullptr)
    fail("{}: there is no tensor '{}'; check its list of tensors", describe(), shown(name));
  return *info;
}

const TensorInfo& TensorSource::find_numbers(std::string_view name) const {
  const TensorInfo& info = at(name);
  if (info.dtype == Dtype::other)
    fail(
        "{}: tensor '{}' is stored as {}, which cannot be read as weights; convert it to F32, F16 "
        "or BF16",
        describe(), shown(name), shown(info.stored_as));
  if (info.shape.size() > 5)
    fail("{}: tensor '{}' has {} dimensions; at most 5 can be read", describe(), shown(name),
         info.shape.size());
  return info;
}

Tensor TensorSource::read(std::string_view name) const {
  const TensorInfo& info = find_numbers(name);
  const Shape shape{std::span<const Index>(info.shape)};
  if (info.dtype == kRealDtype) {
    Tensor tensor(shape);
    read_bytes(info, std::as_writable_bytes(tensor.span()));
    return tensor;
  }
  std::vector<std::byte> bytes;
  read_raw(name, bytes);
  return to_tensor(bytes, info.dtype, shape);
}

TensorBytes TensorSource::bytes(std::string_view name) const {
  const TensorInfo& info = find_numbers(name);
  const std::size_t size = bytes_of(info.dtype, info.size());
  if (auto mapped = map_bytes(info)) {
    check(
        mapped->bytes.size() == size &&
            reinterpret_cast<std::uintptr_t>(mapped->bytes.data()) % alignment_of(info.dtype) == 0,
        "{}: tensor '{}' is mapped incorrectly", describe(), name);
    return *std::move(mapped);
  }
  const std::shared_ptr<void> owned = pooled_buffer(size);
  const std::span<std::byte> all(static_cast<std::byte*>(owned.get()), size);
  read_bytes(info, all);
  return {all, owned};
}

void TensorSource::read_raw(std::string_view name, std::vector<std::byte>& bytes) const {
  const TensorInfo& info = at(name);
  bytes.resize(info.bytes);
  read_bytes(info, bytes);
}

std::vector<std::filesystem::path> TensorFiles::files() const {
  std::vector<std::filesystem::path> files;
  for (const auto& part : parts_) files.push_back(part->path);
  return files;
}

const std::shared_ptr<const MappedFile>& TensorFiles::Part::map() const {
  if (mapped_ == nullptr)
    mapped_ = std::make_shared<const MappedFile>(file.descriptor(), file.size(), path);
  return mapped_;
}

void TensorFiles::read_bytes(const TensorInfo& info, std::span<std::byte> out) const {
  parts_[info.file]->file.read_at(info.begin, out);
}

std::optional<TensorBytes> TensorFiles::map_bytes(const TensorInfo& info) const {
  // The formats do not promise that a tensor begins at a multiple of its numbers' size.
  if (info.bytes == 0 || info.begin % alignment_of(info.dtype) != 0) return std::nullopt;
  const auto& mapped = parts_[info.file]->map();
  return TensorBytes{mapped->bytes().subspan(info.begin, info.bytes), mapped};
}

Tensor to_tensor(std::span<const std::byte> bytes, Dtype dtype, const Shape& shape) {
  check(dtype != Dtype::other && bytes.size() == bytes_of(dtype, shape.size()),
        "to_tensor: {} of {} does not fit {} bytes", shape, name_of(dtype), bytes.size());
  Tensor out(shape);
  const std::byte* from = bytes.data();  // at any address
  const bool plain = with_type(dtype, [&](auto value) {
    for (Real& to : out.span()) {
      std::memcpy(static_cast<void*>(&value), from, sizeof(value));
      to = static_cast<Real>(value);
      from += sizeof(value);
    }
  });
  if (!plain) widen_blocks(dtype, bytes.data(), 0, out.size(), out.data());
  return out;
}

void pack(std::span<const Real> numbers, Dtype dtype, std::vector<std::byte>& bytes) {
  const auto count = static_cast<Index>(numbers.size());
  check(dtype != Dtype::other, "pack: {} is not a weight type", name_of(dtype));
  bytes.resize(bytes_of(dtype, count));
  std::byte* to = bytes.data();
  const bool plain = with_type(dtype, [&]<class Stored>(Stored) {
    for (const Real number : numbers) {
      const Stored value = static_cast<Stored>(number);
      std::memcpy(to, static_cast<const void*>(&value), sizeof(value));
      to += sizeof(value);
    }
  });
  if (!plain) round_to_blocks(dtype, numbers.data(), count, bytes.data());
}

void round_to(Dtype dtype, std::span<Real> numbers) {
  const bool plain = with_type(dtype, [&]<class Stored>(Stored) {
    for (Real& number : numbers) number = static_cast<Real>(static_cast<Stored>(number));
  });
  check(plain, "round_to: {} is not a weight type", name_of(dtype));
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

TensorFileWriter::TensorFileWriter(const std::filesystem::path& path, std::string_view head,
                                   std::vector<AnnouncedTensor> tensors, std::size_t alignment)
    : file_(path), writer_(file_), tensors_(std::move(tensors)), alignment_(alignment) {
  writer_.write(std::as_bytes(std::span(head)));
}

void TensorFileWriter::add(const std::string& name, const Tensor& tensor) {
  constexpr Index kNumbersAtOnce = 1 << 20;  // a whole number of blocks
  const std::string path = file_.target().string();
  check(next_ < tensors_.size(), "{}: tensor '{}' was not announced", path, name);
  const AnnouncedTensor& wanted = tensors_[next_++];
  check(name == wanted.name && tensor.shape() == wanted.shape,
        "{}: tensor '{}' {} came where '{}' {} was expected", path, name, tensor.shape(),
        wanted.name, wanted.shape);
  std::vector<std::byte> bytes;
  for (Index begin = 0; begin < tensor.size(); begin += kNumbersAtOnce) {
    const Index size = std::min(kNumbersAtOnce, tensor.size() - begin);
    pack(tensor.span().subspan(begin, size), wanted.dtype, bytes);
    writer_.write(bytes);
  }
  bytes.assign(padding_after(bytes_of(wanted.dtype, tensor.size()), alignment_), std::byte{});
  writer_.write(bytes);
}

void TensorFileWriter::commit(const std::function<void(const std::filesystem::path&)>& verify) {
  check(complete(), "{}: only {} of {} tensors were written", file_.target().string(), next_,
        tensors_.size());
  writer_.close();
  file_.commit(verify);
}

}  // namespace focus
