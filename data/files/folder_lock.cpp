#include "data/files/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"

namespace focus {

FolderLock::FolderLock(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path file = folder / name;
  // Without O_CLOEXEC: a run that outlives this process still writes into the folder.
  descriptor_ = open(file.c_str(), O_RDWR | O_CREAT, 0644);
  if (descriptor_ < 0) fail_writing("write", file, errno);
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS) return;  // it knows no locks
    char holder[32] = {};
    const ssize_t length = pread(descriptor_, holder, sizeof(holder) - 1, 0);
    close(descriptor_);
    if (error != EWOULDBLOCK) fail_writing("lock", file, error);
    fail(
        "{}: process {}, or a run started by it, uses this folder; wait for it, or choose another "
        "folder with out=",
        folder.string(), length > 0 ? holder : "of unknown ID");
  }
  const std::string own = fmt::format("{}", getpid());
  if (ftruncate(descriptor_, 0) != 0 ||
      pwrite(descriptor_, own.data(), own.size(), 0) != static_cast<ssize_t>(own.size())) {
    const int error = errno;
    close(descriptor_);
    fail_writing("write", file, error);
  }
}

FolderLock::~FolderLock() {
  // A folder that nobody is at work in looks the same whoever was there last.
  [[maybe_unused]] const int emptied = ftruncate(descriptor_, 0);
  close(descriptor_);
}

}  // namespace focus
