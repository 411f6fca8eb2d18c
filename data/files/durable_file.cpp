#include "data/files/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <random>
#include <string>
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

const char* hint_for_reading(int error) {
  switch (error) {
    case ENOENT:
      return "check its name";
    case EACCES:
    case EPERM:
      return "you may not read it: change its permissions";
    case ENOTDIR:
      return "a part of the path is a file, not a folder: check its name";
    case EISDIR:
      return "it is a folder: give the name of a file";
    case ENOMEM:
      return "free some memory and try again";
    default:
      return "check the disk and try again";
  }
}

const char* hint_for_writing(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "the disk is full: free some space or write to another folder";
    case EFBIG:
      return "the file is larger than the system allows: raise the limit (ulimit -f)";
    case EROFS:
    case EACCES:
    case EPERM:
      return "the place is read-only for you: write to another folder or change its permissions";
    case ENOENT:
      return "the folder does not exist: create it first";
    case ENOTDIR:
      return "a part of the path is a file, not a folder: write to another path";
    case EISDIR:
      return "it is a folder: give the name of a file";
    case ENAMETOOLONG:
      return "the name is too long: choose a shorter one";
    default:
      return "check the disk and try again";
  }
}

[[noreturn]] void fail_errno(std::string_view action, const fs::path& path, int error,
                             const char* hint) {
  fail("cannot {} {}: {}; {}", action, path.string(), std::system_category().message(error), hint);
}

void sync_path(const fs::path& path, int flags) {
  const int descriptor = open_file(path, flags);
  if (descriptor < 0) fail_writing("write", path, errno);
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  // Some file systems know no fsync for folders; there is nothing more to do then.
  if (error != 0 && !(error == EINVAL && (flags & O_DIRECTORY) != 0)) {
    fail_writing("write", path, error);
  }
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// The writing process and its token, from a temporary file's name.
struct Writer {
  pid_t pid = 0;
  std::string_view token;
};
bool parse_temporary_name(std::string_view name, Writer& writer) {
  const std::size_t mark = name.rfind(kMark);
  if (name.empty() || name[0] != '.' || mark == std::string_view::npos) return false;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + mark + kMark.size(), end, writer.pid);
  if (error != std::errc() || writer.pid <= 0 || rest == end || *rest != '-') return false;
  const std::string_view tail(rest + 1, end);
  const std::size_t dash = tail.find('-');
  if (dash == std::string_view::npos || dash + 1 == tail.size()) return false;
  writer.token = tail.substr(0, dash);
  return std::all_of(tail.begin() + static_cast<std::ptrdiff_t>(dash) + 1, tail.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
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
  fail_errno(action, path, error, hint_for_reading(error));
}
void fail_writing(std::string_view action, const fs::path& path, int error) {
  fail_errno(action, path, error, hint_for_writing(error));
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
  sync_path(temporary_, O_RDONLY);
  if (verify) verify(temporary_);
  if (rename(temporary_.c_str(), target_.c_str()) != 0) fail_writing("write", target_, errno);
  committed_ = true;
  sync_path(folder_of(target_), O_RDONLY | O_DIRECTORY);
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
    bytes = bytes.subspan(static_cast<std::size_t>(written));
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
  sync_path(path, fs::is_directory(path) ? O_RDONLY | O_DIRECTORY : O_RDONLY);
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
  if (access(folder_of(folder).c_str(), R_OK) == 0)
    sync_path(folder_of(folder), O_RDONLY | O_DIRECTORY);
}

std::size_t sweep_orphans(const fs::path& folder, std::string_view target_name) {
  const std::string mine = target_name.empty() ? "." : fmt::format(".{}{}", target_name, kMark);
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) fail_reading("list", folder, error.value());
  std::size_t removed = 0;
  for (const fs::directory_entry& entry : entries) {
    const std::string name = entry.path().filename().string();
    Writer writer;
    if (entry.is_symlink(error) || !name.starts_with(mine) || !parse_temporary_name(name, writer))
      continue;
    if (!entry.is_regular_file(error) && !entry.is_directory(error)) continue;
    if (is_gone(writer) && fs::remove_all(entry.path(), error) > 0 && !error) ++removed;
  }
  return removed;
}

}  // namespace focus
