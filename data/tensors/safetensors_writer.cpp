#include "data/tensors/safetensors_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "autograd/base/check.h"
#include "data/tensors/safetensors.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMaxWrittenHeaderBytes = 100'000'000;  // the format's
constexpr Index kBlock = 1 << 20;                            // numbers that are packed at a time

const char* published_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "F32";
    case Dtype::f16:
      return "F16";
    case Dtype::bf16:
      return "BF16";
    case Dtype::f64:
      return "F64";
    default:
      break;
  }
  check(false, "safetensors: {} cannot be written", name_of(dtype));
  return "";
}

/// The header's JSON, padded so that the data is aligned.
std::string make_header(const std::string& path,
                        const std::vector<std::pair<std::string, Shape>>& tensors, Dtype dtype,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  std::set<std::string> names;
  for (const auto& [name, shape] : tensors) {
    check(!name.empty() && name != "__metadata__", "{}: '{}' is not a valid tensor name", path,
          name);
    check(names.insert(name).second, "{}: tensor '{}' appears twice", path, name);
    const std::uint64_t end = offset + bytes_of(dtype, shape.size());
    const std::vector<Index> dims(shape.dims().begin(), shape.dims().end());
    header[name] = {
        {"dtype", published_dtype(dtype)}, {"shape", dims}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json;
  try {
    json = header.dump();
  } catch (const nlohmann::json::exception& error) {
    check(false, "{}: a name or value in the metadata is not UTF-8: {}", path, error.what());
  }
  json.resize((json.size() + 7) / 8 * 8, ' ');
  check(json.size() <= kMaxWrittenHeaderBytes,
        "{}: the names and metadata need {} bytes, the format allows {}", path, json.size(),
        kMaxWrittenHeaderBytes);
  return json;
}

std::vector<std::pair<std::string, Shape>> shapes_of(
    const fs::path& path, const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const auto& [name, tensor] : tensors) {
    check(tensor.defined(), "{}: tensor '{}' is undefined", path.string(), name);
    shapes.emplace_back(name, tensor.shape());
  }
  return shapes;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const fs::path& path,
                                     std::vector<std::pair<std::string, Shape>> tensors,
                                     Dtype dtype,
                                     const std::map<std::string, std::string>& metadata)
    : file_(path), writer_(file_), tensors_(std::move(tensors)), dtype_(dtype) {
  const std::string json = make_header(path.string(), tensors_, dtype, metadata);
  const std::uint64_t header_bytes = json.size();
  writer_.write(std::as_bytes(std::span(&header_bytes, 1)));
  writer_.write(std::as_bytes(std::span(json)));
}

void SafetensorsWriter::add(const std::string& name, const Tensor& tensor) {
  const std::string path = file_.target().string();
  check(next_ < tensors_.size(), "{}: tensor '{}' was not announced", path, name);
  const auto& [wanted, shape] = tensors_[next_++];
  check(name == wanted && tensor.shape() == shape,
        "{}: tensor '{}' {} came where '{}' {} was expected", path, name, tensor.shape(), wanted,
        shape);
  std::vector<std::byte> bytes;
  for (Index begin = 0; begin < tensor.size(); begin += kBlock) {
    const Index size = std::min(kBlock, tensor.size() - begin);
    pack(tensor.span().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(size)),
         dtype_, bytes);
    writer_.write(bytes);
  }
}

void SafetensorsWriter::commit() {
  check(complete(), "{}: only {} of {} tensors were written", file_.target().string(), next_,
        tensors_.size());
  writer_.close();
  file_.commit([](const fs::path& written) { SafetensorsFile(written).tensors(); });
}

void write_safetensors(const fs::path& path, std::vector<std::pair<std::string, Tensor>> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  SafetensorsWriter writer(path, shapes_of(path, tensors), Dtype::f32, metadata);
  for (const auto& [name, tensor] : tensors) writer.add(name, tensor);
  writer.commit();
}

}  // namespace focus
