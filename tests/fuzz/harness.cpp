#include "tests/fuzz/harness.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "data/files/utf8.h"

namespace {

constexpr std::size_t kNoLimit = ~std::size_t{0};
std::atomic<std::size_t> in_use{0};
std::atomic<std::size_t> most{kNoLimit};

void* counted(void* pointer) {
  if (pointer == nullptr) throw std::bad_alloc();
  const std::size_t size = malloc_usable_size(pointer);
  if (in_use.fetch_add(size) + size > most) {
    most = kNoLimit;
    focus::fuzz::report("more memory was taken than the input's size allows");
  }
  return pointer;
}

void* allocate(std::size_t size) { return counted(std::malloc(std::max<std::size_t>(size, 1))); }

void* allocate(std::size_t size, std::align_val_t align) {
  const auto step = static_cast<std::size_t>(align);
  return counted(
      std::aligned_alloc(step, (std::max<std::size_t>(size, 1) + step - 1) / step * step));
}

void release(void* pointer) {
  if (pointer != nullptr) in_use -= malloc_usable_size(pointer);
  std::free(pointer);
}

}  // namespace

// Every form is replaced: a pair of which one came from elsewhere would be counted once.
void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size); }
void* operator new(std::size_t size, std::align_val_t align) { return allocate(size, align); }
void* operator new[](std::size_t size, std::align_val_t align) { return allocate(size, align); }
void operator delete(void* pointer) noexcept { release(pointer); }
void operator delete[](void* pointer) noexcept { release(pointer); }
void operator delete(void* pointer, std::size_t) noexcept { release(pointer); }
void operator delete[](void* pointer, std::size_t) noexcept { release(pointer); }
void operator delete(void* pointer, const std::nothrow_t&) noexcept { release(pointer); }
void operator delete[](void* pointer, const std::nothrow_t&) noexcept { release(pointer); }
void operator delete(void* pointer, std::align_val_t) noexcept { release(pointer); }
void operator delete[](void* pointer, std::align_val_t) noexcept { release(pointer); }
void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept { release(pointer); }
void operator delete[](void* pointer, std::size_t, std::align_val_t) noexcept { release(pointer); }

namespace focus::fuzz {

void report(const std::string& what) {
  std::fprintf(stderr, "fuzz target: %s\n", what.c_str());
  std::abort();
}

AllocationLimit::AllocationLimit(std::size_t bytes) : outer_(most.exchange(in_use + bytes)) {}
AllocationLimit::~AllocationLimit() { most = outer_; }

void check_message(std::string_view message, LineStarts starts) {
  const auto fault = [&](const char* what) {
    report(std::string(what) + ": " + std::string(message));
  };
  if (!is_valid_utf8(message)) fault("a message that is not UTF-8");
  std::string_view rest = message;
  do {
    const std::string_view line = rest.substr(0, starts.size() == 0 ? rest.npos : rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
    if (std::ranges::any_of(line, is_control)) fault("a control character in a message");
    const auto begins = [&](std::string_view start) {
      constexpr std::string_view kUnpacking = "cannot unpack ";  // which any file may want to be
      return line.substr(line.starts_with(kUnpacking) ? kUnpacking.size() : 0).starts_with(start);
    };
    if (line.empty() || (starts.size() > 0 && std::ranges::none_of(starts, begins))) {
      fault("an incomplete line in a message");
    }
  } while (!rest.empty());
}

MemoryFile::MemoryFile(std::string_view bytes) : descriptor_(memfd_create("input", MFD_CLOEXEC)) {
  if (descriptor_ < 0) throw std::bad_alloc();
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written <= 0) throw std::bad_alloc();
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

MemoryFile::~MemoryFile() { close(descriptor_); }

std::filesystem::path MemoryFile::path() const {
  return "/proc/self/fd/" + std::to_string(descriptor_);
}

}  // namespace focus::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  focus::fuzz::try_input({reinterpret_cast<const char*>(data), size});
  return 0;
}
