#pragma once

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "autograd/base/random.h"
#include "tests/support/cli.h"
#include "tests/support/pack.h"

// What a file name may lead to that no command accepts.
namespace focus {

/// 320 MB of blanks in 50 kB, as streams one after the other: 5 GB would be as easy.
inline const std::string& xz_bomb() {
  static const std::string bomb = [] {
    const std::string one = packed(std::string(std::size_t{16} << 20, ' '), ARCHIVE_FILTER_XZ);
    std::string all;
    for (int i = 0; i < 20; ++i) all += one;
    return all;
  }();
  return bomb;
}
inline const std::string& bz2_bomb() {
  static const std::string bomb =
      packed(std::string(std::size_t{300} << 20, ' '), ARCHIVE_FILTER_BZIP2);
  return bomb;
}

inline std::string noise(std::size_t bytes) {
  Rng rng(23);
  std::string text;
  while (text.size() < bytes) text += static_cast<char>(rng.below(256));
  return text;
}

struct Thing {
  std::string name;
  std::function<void(const fs::path& path)> put;
  bool may_be_text = false;
};

inline Thing bytes_of(std::string name, std::function<std::string()> bytes,
                      bool may_be_text = false) {
  return {std::move(name),
          [bytes = std::move(bytes)](const fs::path& path) { write_text(path, bytes()); },
          may_be_text};
}

inline void put_socket(const fs::path& path) {
  // An address is shorter than many a path: it is bound in its folder.
  const fs::path before = fs::current_path();
  fs::current_path(path.parent_path());
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = ""};
  std::strncpy(address.sun_path, path.filename().c_str(), sizeof(address.sun_path) - 1);
  const int made = socket(AF_UNIX, SOCK_STREAM, 0);
  const bool bound = bind(made, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(made);
  fs::current_path(before);
  if (!bound) throw std::runtime_error("no socket");
}

inline std::vector<Thing> hostile_things() {
  const auto link = [](const std::string& to) {
    return [to](const fs::path& path) { fs::create_symlink(to, path); };
  };
  return {
      {"a link that leads nowhere", link("nowhere")},
      {"links in a circle",
       [](const fs::path& path) {
         fs::create_symlink(path.filename().string() + ".back", path);
         fs::create_symlink(path.filename(), path.string() + ".back");
       }},
      {"a pipe", [](const fs::path& path) { mkfifo(path.c_str(), 0600); }},
      {"/dev/zero", link("/dev/zero")},
      {"/dev/null", link("/dev/null")},
      {"/dev/full", link("/dev/full")},
      {"a folder", [](const fs::path& path) { fs::create_directory(path); }},
      {"a socket", put_socket},
      bytes_of("nothing", [] { return ""; }),
      bytes_of(
          "noise", [] { return noise(5000); }, true),
      bytes_of("a cut xz", [] { return packed(noise(5000), ARCHIVE_FILTER_XZ).substr(0, 3000); }),
      bytes_of("noise behind the magic of xz",
               [] { return packed("text", ARCHIVE_FILTER_XZ).substr(0, 6) + noise(5000); }),
      bytes_of("an xz bomb", [] { return xz_bomb(); }),
      bytes_of("a cut bz2",
               [] { return packed(noise(5000), ARCHIVE_FILTER_BZIP2).substr(0, 3000); }),
      bytes_of("noise behind the magic of bz2", [] { return "BZh91AY&SY" + noise(5000); }),
      bytes_of("a bz2 bomb", [] { return bz2_bomb(); }),
      {"two terabytes of nothing",
       [](const fs::path& path) {
         write_text(path, "");
         fs::resize_file(path, std::uintmax_t{2} << 40);
       }},
  };
}

}  // namespace focus
