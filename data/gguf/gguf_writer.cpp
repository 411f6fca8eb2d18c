#include "data/gguf/gguf_writer.h"

#include <algorithm>
#include <set>

#include "autograd/base/check.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr std::uint32_t kVersion = 3;
constexpr std::size_t kAlignment = 32;     // where no key says another
constexpr std::size_t kLongestName = 63;   // llama.cpp's
constexpr Index kNumbersAtOnce = 1 << 20;  // a whole number of blocks

std::size_t padding_after(std::size_t bytes) {
  return (kAlignment - bytes % kAlignment) % kAlignment;
}

std::size_t bytes_of(const GgufTensor& tensor) {
  return bytes_of(tensor.dtype, tensor.shape.size());
}

void check_tensor(const std::string& path, const GgufTensor& tensor) {
  const std::string& name = tensor.name;
  check(!name.empty() && name.size() <= kLongestName,
        "{}: tensor '{}': a name in a GGUF file has 1 to {} bytes", path, name, kLongestName);
  check(tensor.shape.rank() >= 1 && tensor.shape.rank() <= 4,
        "{}: tensor '{}' has {} dimensions; GGUF supports 1 to 4", path, name, tensor.shape.rank());
  const Index row = tensor.shape[tensor.shape.rank() - 1];
  check(row % block_numbers(tensor.dtype) == 0,
        "{}: tensor '{}': rows of {} values do not fill whole blocks of {}", path, name, row,
        name_of(tensor.dtype));
}

/// All before the tensors' numbers.
std::string make_head(const std::string& path, const GgufKeys& keys,
                      const std::vector<GgufTensor>& tensors) {
  std::string head(kGgufMagic);
  append_gguf(head, kVersion);
  append_gguf<std::uint64_t>(head, tensors.size());
  append_gguf<std::uint64_t>(head, keys.count());
  head += keys.bytes();
  std::uint64_t offset = 0;
  std::set<std::string> names;
  for (const GgufTensor& tensor : tensors) {
    check_tensor(path, tensor);
    check(names.insert(tensor.name).second, "{}: tensor '{}' appears twice", path, tensor.name);
    append_gguf_text(head, tensor.name);
    const auto dims = tensor.shape.dims();
    append_gguf(head, static_cast<std::uint32_t>(dims.size()));
    for (std::size_t i = dims.size(); i-- > 0;)
      append_gguf(head, static_cast<std::uint64_t>(dims[i]));
    append_gguf(head, ggml_type_of(tensor.dtype).number);
    append_gguf(head, offset);
    const std::size_t bytes = bytes_of(tensor);
    offset += bytes + padding_after(bytes);
  }
  head.resize(head.size() + padding_after(head.size()), '\0');
  return head;
}

}  // namespace

const GgmlType& ggml_type_of(Dtype dtype) {
  constexpr Dtype kWritten[] = {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::q8_0};
  const auto types = ggml_types();
  const auto found = std::ranges::find(types, dtype, &GgmlType::format);
  check(std::ranges::find(kWritten, dtype) != std::end(kWritten) && found != types.end(),
        "GGUF: {} cannot be written (f32, f16, bf16, q8_0 can)", name_of(dtype));
  return *found;
}

GgufWriter::GgufWriter(const fs::path& path, const GgufKeys& keys, std::vector<GgufTensor> tensors)
    : file_(path), writer_(file_), tensors_(std::move(tensors)) {
  const std::string head = make_head(path.string(), keys, tensors_);
  writer_.write(std::as_bytes(std::span(head)));
}

void GgufWriter::pad(std::size_t bytes) {
  const std::vector<std::byte> zeros(padding_after(bytes));
  writer_.write(zeros);
}

void GgufWriter::add(const std::string& name, const Tensor& tensor) {
  const std::string path = file_.target().string();
  check(next_ < tensors_.size(), "{}: tensor '{}' was not announced", path, name);
  const GgufTensor& wanted = tensors_[next_++];
  check(name == wanted.name && tensor.shape() == wanted.shape,
        "{}: tensor '{}' {} came where '{}' {} was expected", path, name, tensor.shape(),
        wanted.name, wanted.shape);
  std::vector<std::byte> bytes;
  for (Index begin = 0; begin < tensor.size(); begin += kNumbersAtOnce) {
    const Index size = std::min(kNumbersAtOnce, tensor.size() - begin);
    pack(tensor.span().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size)),
         wanted.dtype, bytes);
    writer_.write(bytes);
  }
  pad(bytes_of(wanted));
}

void GgufWriter::commit(const std::function<void(const GgufSource&)>& verify) {
  check(next_ == tensors_.size(), "{}: only {} of {} tensors were written", file_.target().string(),
        next_, tensors_.size());
  writer_.close();
  file_.commit([&](const fs::path& written) {
    const GgufSource source(written);
    if (verify) verify(source);
  });
}

}  // namespace focus
