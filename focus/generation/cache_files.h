#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "focus/generation/sequence_cache.h"

namespace focus {

/// What prompts made of caches, in files, for prompts that begin alike: a cache out of a file
/// continues with the bits of the one that was saved. A file appears whole or not at all, its
/// checksums are verified before anything of it is used, and it names what it was made by.
class CacheFiles {
 public:
  /// Tokens that a prompt may part from a saved one before its end where a cache has summary
  /// tokens: CachedDecoder::cache() of what is saved and loaded.
  static constexpr Index kUndo = 256;

  /// `identity`: all that decides a cache's bits, in lines of a key and its value. With a limit the
  /// files of a folder, at most so many bytes in all: the ones that were used least recently go,
  /// and what cannot be used or written is passed over with a notice. Without one a single file,
  /// which is there or will be. Throws std::runtime_error, one line, where that is anything else
  /// than a whole prompt cache of that identity, or the place cannot be written.
  CacheFiles(std::filesystem::path path, std::string identity, std::uint64_t most_bytes = 0);
  /// Waits for what is being written.
  ~CacheFiles();
  CacheFiles(const CacheFiles&) = delete;
  CacheFiles& operator=(const CacheFiles&) = delete;

  struct Kept {
    std::filesystem::path path;
    std::vector<std::int32_t> ids;
    Index least = 0;          // SequenceCache::least_size()
    std::uint64_t bytes = 0;  // of the file
  };
  /// What can be loaded.
  const std::vector<Kept>& kept();
  /// Fills caches as they were when `from` was saved; `also` may be null. False where it cannot be
  /// used, and it is forgotten then; of one file throws. What it has left in them must be cleared.
  bool load(const Kept& from, CachedDecoder& decoder, SequenceCache& cache, SequenceCache* also);
  /// Copies what a prompt has made, and writes it meanwhile; does nothing where files have all but
  /// an eighth of it. Throws where one file could not be written the last time.
  void save(SequenceCache& cache, SequenceCache* also);
  /// Waits for what is being written. Throws where one file cannot be.
  void finish();

 private:
  bool is_one_file() const { return most_bytes_ == 0; }
  void write(SequenceCache& cache, SequenceCache* also);
  /// Throws; of a folder tells it.
  void refuse(const std::exception& error) const;
  void drop_oldest();

  const std::filesystem::path path_;
  const std::string identity_;
  const std::uint64_t most_bytes_ = 0;  // 0: one file
  std::vector<Kept> kept_;
  Kept written_;  // what is being written
  std::future<void> writing_;
};

}  // namespace focus
