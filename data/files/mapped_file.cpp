#include "data/files/mapped_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"

namespace focus {

/// An entry of the table of mapped files. Entries are added and used again, never freed: a signal
/// handler may read them at any time.
struct MappedFile::Place {
  std::atomic<std::uintptr_t> begin{0}, end{0};  // end 0: free
  std::array<char, 1024> path{};
  std::atomic<bool> taken{true};
  Place* next = nullptr;

  static std::atomic<Place*> first;
  static Place* take();
};

std::atomic<MappedFile::Place*> MappedFile::Place::first{nullptr};

MappedFile::Place* MappedFile::Place::take() {
  for (Place* place = first.load(); place != nullptr; place = place->next)
    if (bool free = false; place->taken.compare_exchange_strong(free, true)) return place;
  auto* place = new Place;
  place->next = first.load();
  while (!first.compare_exchange_weak(place->next, place)) {
  }
  return place;
}

MappedFile::MappedFile(int descriptor, std::size_t size, const std::filesystem::path& path) {
  if (size == 0) return;
  struct stat status {};
  if (fstat(descriptor, &status) != 0) fail_reading("map", path, errno);
  if (static_cast<std::size_t>(status.st_size) < size)
    fail("{}: the file became shorter while it was read; get it again", path.string());
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) fail_reading("map", path, errno);
  bytes_ = {static_cast<const std::byte*>(mapped), size};
  place_ = Place::take();
  path.string().copy(place_->path.data(), place_->path.size() - 1);
  place_->begin = reinterpret_cast<std::uintptr_t>(mapped);
  place_->end = reinterpret_cast<std::uintptr_t>(mapped) + size;
}

MappedFile::~MappedFile() {
  if (place_ == nullptr) return;
  place_->end = 0;
  place_->path.fill('\0');
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  place_->taken = false;
}

const char* mapped_file_at(const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const auto* place = MappedFile::Place::first.load(); place != nullptr; place = place->next)
    if (at >= place->begin && at < place->end) return place->path.data();
  return nullptr;
}

}  // namespace focus
