#include "data/files/durable_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <optional>
#include <random>
#include <regex>
#include <system_error>
#include <utility>

#include "autograd/base/check.h"
#include "data/files/input_file.h"

namespace focus {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kMark = ".focus-tmp-";

/// Tells the files of this process from those of a dead one that had the same number, which is the
/// rule and not the exception in containers.
const std::string& process_token() {
  static const std::string token = [] {
    std::random_device device;
    return fmt::format("{:08x}{:08x}", device(), device());
  }();
  return token;
}

constexpr const char* kFolder = "it is a folder: give the name of a file";
constexpr const char* kMayNotRead = "you may not read it: change its permissions";
constexpr const char* kReadOnly =
    "the place is read-only for you: write to another folder or change its permissions";
constexpr const char* kFull = "the disk is full: free some space or write to another folder";
constexpr const char* kOther = "check the disk and try again";

/// What to do about an error of reading, and of writing.
struct Hint {
  int error;
  const char *reading, *writing;
};
constexpr Hint kHints[] = {
    {ENOENT, "check its name", "the folder does not exist: create it first"},
    {EACCES, kMayNotRead, kReadOnly},
    {EPERM, kMayNotRead, kReadOnly},
    {EROFS, kOther, kReadOnly},
    {ENOTDIR, "a part of the path is a file, not a folder: check its name",
     "a part of the path is a file, not a folder: write to another path"},
    {EISDIR, kFolder, kFolder},
    {ENOMEM, "free some memory and try again", kOther},
    {ENOSPC, kOther, kFull},
    {EDQUOT, kOther, kFull},
    {EFBIG, kOther, "the file is larger than the system allows: raise the limit (ulimit -f)"},
    {ENAMETOOLONG, kOther, "the name is too long: choose a shorter one"}};

[[noreturn]] void fail_errno(std::string_view action, const fs::path& path, int error,
                             const char* Hint::*hint) {
  const auto found = std::ranges::find(kHints, error, &Hint::error);
  fail("cannot {} {}: {}; {}", action, path.string(), std::system_category().message(error),
       found == std::end(kHints) ? kOther : (*found).*hint);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// Without a slash at its end; a link's target, since it is that folder which is replaced.
fs::path named(const fs::path& target) {
  if (fs::exists(target)) return fs::canonical(target);
  return target.has_filename() ? target : target.parent_path();
}

/// The writing process and its token.
struct Writer {
  pid_t pid = 0;
  std::string token;
};
/// From a name of temporary_name(); nothing for another.
std::optional<Writer> writer_of(const std::string& name) {
  static const std::regex kForm(R"((?=\.)[^]*\.focus-tmp-([1-9][0-9]{0,8})-([^-]*)-[0-9]+)");
  std::smatch match;
  if (!std::regex_match(name, match, kForm)) return std::nullopt;
  return Writer{std::stoi(match[1]), match[2]};
}

/// A process that has ended and that its parent has not asked after yet, as the first process of a
/// container may never do.
bool is_zombie(pid_t pid) {
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(stat, line);
  const std::size_t end = line.rfind(") ");  // of the program's name, which may hold anything
  return end != std::string::npos && end + 2 < line.size() && line[end + 2] == 'Z';
}

bool is_gone(const Writer& writer) {
  if (writer.pid == getpid()) return writer.token != process_token();
  return (kill(writer.pid, 0) != 0 && errno == ESRCH) || is_zombie(writer.pid);
}

}  // namespace

void fail_reading(std::string_view action, const fs::path& path, int error) {
  std::error_code none;
  if (error == ENOENT && fs::is_symlink(fs::symlink_status(path, none)))
    fail("cannot {} {}: it is a link to {}, which does not exist; fetch that file again", action,
         path.string(), fs::read_symlink(path, none).string());
  fail_errno(action, path, error, &Hint::reading);
}
void fail_writing(std::string_view action, const fs::path& path, int error) {
  fail_errno(action, path, error, &Hint::writing);
}

fs::path temporary_name(const fs::path& target) {
  static std::atomic<unsigned> counter{0};
  const std::string name = fmt::format(".{}{}{}-{}-{}", target.filename().string(), kMark, getpid(),
                                       process_token(), counter++);
  return target.parent_path() / name;
}

DurableFile::DurableFile(fs::path target) : target_(std::move(target)) {
  struct stat status {};
  if (!target_.has_filename()) fail_writing("write", target_, EISDIR);
  // The folder's own check comes first: it names what is wrong better than the file's would.
  if (stat(folder_of(target_).c_str(), &status) != 0) fail_writing("write", target_, errno);
  if (!S_ISDIR(status.st_mode)) fail_writing("write", target_, ENOTDIR);
  // A rename would put a plain file in the place of a device such as /dev/null.
  if (stat(target_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    if (S_ISDIR(status.st_mode)) fail_writing("write", target_, EISDIR);
    fail("cannot write {}: it is not a regular file; give the name of a file", target_.string());
  }
  // What a killed one was at. Who may write to a folder may not always read it.
  if (access(folder_of(target_).c_str(), R_OK) == 0)
    sweep_orphans(folder_of(target_), target_.filename().string());
  temporary_ = temporary_name(target_);
}

DurableFile::~DurableFile() {
  if (!committed_) unlink(temporary_.c_str());
}

void DurableFile::commit(const std::function<void(const fs::path&)>& verify) {
  check(!committed_, "{}: committed twice", target_.string());
  sync_to_disk(temporary_);
  if (verify) verify(temporary_);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail_writing("write", target_, errno);
  committed_ = true;
  sync_to_disk(folder_of(target_));
}

FileWriter::FileWriter(const DurableFile& file) : target_(file.target()) {
  descriptor_ = open_file(file.temporary(), O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (descriptor_ < 0) fail_writing("write", target_, errno);
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  check(descriptor_ >= 0, "{}: written after close", target_.string());
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_writing("write", target_, errno);
    bytes = bytes.subspan(written);
  }
}

void FileWriter::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (descriptor >= 0 && ::close(descriptor) != 0) fail_writing("write", target_, errno);
}

void write_file_durably(const fs::path& path, std::span<const std::byte> bytes) {
  DurableFile file(path);
  FileWriter writer(file);
  writer.write(bytes);
  writer.close();
  file.commit();
}

void write_file_durably(const fs::path& path, std::string_view text) {
  write_file_durably(path, std::as_bytes(std::span(text)));
}

void sync_to_disk(const fs::path& path) {
  std::error_code none;
  const bool folder = fs::is_directory(path, none);
  const int descriptor = open_file(path, folder ? O_RDONLY | O_DIRECTORY : O_RDONLY);
  if (descriptor < 0) fail_writing("write", path, errno);
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  // Some file systems know no fsync for folders; there is nothing more to do then.
  if (error != 0 && !(error == EINVAL && folder)) fail_writing("write", path, error);
}

void make_folder_durably(const fs::path& folder) {
  std::error_code error;
  if (folder.empty() || fs::is_directory(folder, error)) return;
  if (!folder.has_filename()) return make_folder_durably(folder.parent_path());  // "a/b/"
  make_folder_durably(folder.parent_path());
  fs::create_directory(folder, error);
  if (error)
    fail_writing("create the folder", folder, fs::exists(folder) ? ENOTDIR : error.value());
  // Who may write to a folder may not always read it, and without that there is no sync.
  if (access(folder_of(folder).c_str(), R_OK) == 0) sync_to_disk(folder_of(folder));
}

std::size_t sweep_orphans(const fs::path& folder, std::string_view target_name) {
  const std::string mine = target_name.empty() ? "." : fmt::format(".{}{}", target_name, kMark);
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) fail_reading("list", folder, error.value());
  std::size_t removed = 0;
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    const std::optional<Writer> writer = writer_of(name);
    if (!writer || !name.starts_with(mine) || entry.is_symlink(error)) continue;
    if (!entry.is_regular_file(error) && !entry.is_directory(error)) continue;
    if (is_gone(*writer) && fs::remove_all(entry.path(), error) > 0 && !error) ++removed;
  }
  return removed;
}

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
  } else if (!fs::is_directory(folder_of(target_))) {
    fail_writing("write", target_, fs::exists(folder_of(target_)) ? ENOTDIR : ENOENT);
  }
  sweep_orphans(folder_of(target_), target_.filename().string());
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
  sync_to_disk(folder_of(target_));
  if (replaces) fs::remove_all(temporary_);  // the one that stood there
}

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
