#include "data/files/read_file.h"

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "autograd/check.h"
#include "data/files/durable_file.h"

namespace focus {

std::string read_file(const std::filesystem::path& path) {
  if (is_directory(path)) fail("cannot read {}: it is a folder, not a file", path.string());
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_reading("read", path, errno);
  constexpr std::size_t kChunk = 1 << 20;
  // In chunks: a pipe does not know its size.
  std::string bytes;
  while (file) {
    const std::size_t done = bytes.size();
    bytes.resize(std::max(kChunk, 2 * done));
    file.read(bytes.data() + done, static_cast<std::streamsize>(bytes.size() - done));
    bytes.resize(done + static_cast<std::size_t>(file.gcount()));
  }
  if (file.bad()) fail_reading("read", path, errno);
  return bytes;
}

}  // namespace focus
