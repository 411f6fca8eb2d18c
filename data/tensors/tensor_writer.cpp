#include "data/tensors/tensor_writer.h"

#include <algorithm>

#include "autograd/base/check.h"

namespace focus {

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
    pack(tensor.span().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size)),
         wanted.dtype, bytes);
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
