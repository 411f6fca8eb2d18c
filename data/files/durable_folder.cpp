#include "data/files/durable_folder.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// Without a slash at its end; a link's target, since it is that folder which is replaced.
fs::path named(const fs::path& target) {
  if (fs::exists(target)) return fs::canonical(target);
  return target.has_filename() ? target : target.parent_path();
}

}  // namespace

DurableFolder::DurableFolder(const fs::path& target, bool overwrite, const IsOurs& is_ours)
    : target_(named(target)) {
  if (fs::exists(target_)) {
    if (!fs::is_directory(target_)) fail_writing("write", target_, ENOTDIR);
    if (!overwrite && !fs::is_empty(target_))
      fail("{}: exists already and is not empty; choose another folder, or add --overwrite",
           target_.string());
    for (const fs::directory_entry& entry : fs::directory_iterator(target_)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_regular_file() || !is_ours(name))
        fail(
            "{}: is not overwritten: the whole folder would be replaced, and it holds \"{}\", "
            "which is not part of an exported folder; move that file away or choose another folder",
            target_.string(), name);
    }
  } else if (!fs::is_directory(parent_of(target_))) {
    fail_writing("write", target_, fs::exists(parent_of(target_)) ? ENOTDIR : ENOENT);
  }
  sweep_orphans(parent_of(target_), target_.filename().string());
  temporary_ = temporary_name(target_);
  std::error_code error;
  fs::create_directory(temporary_, error);
  if (error) fail_writing("write", target_, error.value());
}

DurableFolder::~DurableFolder() {
  std::error_code error;
  if (!committed_) fs::remove_all(temporary_, error);
}

void DurableFolder::commit() {
  check(!committed_, "{}: committed twice", target_.string());
  sync_to_disk(temporary_);
  const bool replaces = fs::exists(target_) && !fs::is_empty(target_);
  const int failed = renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(),
                               replaces ? RENAME_EXCHANGE : 0);
  if (failed != 0) fail_writing("write", target_, errno);
  committed_ = true;
  sync_to_disk(parent_of(target_));
  if (replaces) fs::remove_all(temporary_);  // the one that stood there
}

}  // namespace focus
