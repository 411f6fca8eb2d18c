#include "data/files/read_file.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <span>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "data/files/file_kind.h"
#include "data/files/input_file.h"

namespace focus {

std::string read_file(const std::filesystem::path& path) {
  constexpr std::uint64_t kChunk = 1 << 14, kMostOfAPipe = std::uint64_t{1} << 30;
  InputFile file(path, InputFile::Pipes::read);
  const std::uint64_t most = file.is_pipe() ? kMostOfAPipe : memory_limit();
  const auto refuse = [&](std::uint64_t size) {
    if (file.is_pipe())
      fail("cannot read {}: more than {} bytes came out of the pipe; write them into a file",
           path.string(), most);
    fail("cannot read {}: its {} bytes do not fit into memory; split it", path.string(), size);
  };
  if (file.size() > most) refuse(file.size());
  std::string bytes;
  try {
    // One byte more than there should be: then the first read that falls short is the last.
    for (std::uint64_t wanted = std::max(kChunk, file.size() + 1);; wanted = bytes.size()) {
      const std::size_t done = bytes.size();
      bytes.resize(done + wanted);
      const std::size_t got = file.read(std::as_writable_bytes(std::span(bytes)).subspan(done));
      bytes.resize(done + got);
      if (got < wanted) {
        refuse_lfs_pointer(bytes, path);
        return bytes;
      }
      if (bytes.size() > most) refuse(bytes.size());
    }
  } catch (const std::bad_alloc&) {
    refuse(std::max<std::uint64_t>(file.size(), bytes.size()));
  }
  return bytes;
}

}  // namespace focus
