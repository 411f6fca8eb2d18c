#include "data/files/hdf5.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "autograd/base/check.h"
#include "data/files/durable_file.h"

namespace focus {
namespace {

herr_t collect(unsigned depth, const H5E_error2_t* entry, void* out) {
  auto& error = *static_cast<H5Error*>(out);
  const std::string text = entry->desc == nullptr ? "" : entry->desc;
  // The innermost entry comes first. A failed read or write carries the errno in its text.
  if (depth == 0) {
    error.reason = text.substr(0, std::min(text.find(", filename"), text.find(": time")));
    if (const std::size_t at = text.find("errno = "); at != std::string::npos) {
      error.system_error = std::atoi(text.c_str() + at + std::strlen("errno = "));
    }
  }
  return 0;
}

/// Throws std::bad_alloc where there is less: the library (1.10) crashes where it gets none.
void want_memory(std::size_t bytes) {
  void* volatile memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  std::free(memory);
}

}  // namespace

void h5_prepare() {
  [[maybe_unused]] static const bool room = (want_memory(std::size_t{4} << 20), true);
  // At the end of the process the library would close what is still open, and 1.10 crashes there
  // after a write that failed. Nothing is left to it: handles close what they hold, files are whole
  // before they get their name.
  [[maybe_unused]] static const herr_t nothing_at_exit = H5dont_atexit();
  [[maybe_unused]] static const herr_t no_plugins = H5PLset_loading_state(0);
  [[maybe_unused]] thread_local const herr_t quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

H5Error h5_error() {
  H5Error error;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &error);
  H5Eclear2(H5E_DEFAULT);
  if (error.reason.empty()) error.reason = "no reason given";
  return error;
}

void h5_fail_reading(const std::filesystem::path& file, std::string_view object) {
  const H5Error error = h5_error();
  if (error.system_error != 0) fail_reading("read", file, error.system_error);
  fail("{}: object '{}': {}", file.string(), object, error.reason);
}

H5Handle h5_file_access() {
  want_memory(std::size_t{1} << 20);  // half of it for each file's cache
  H5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // The 1.10 format puts a checksum on every piece of metadata. Handles left open make the close
  // fail instead of leaving a file half written. Locks are taken where the file system knows them.
  if (H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) < 0 ||
      H5Pset_fclose_degree(access, H5F_CLOSE_SEMI) < 0 ||
      H5Pset_file_locking(access, true, true) < 0) {
    fail("the HDF5 library refuses its settings: {}", h5_error().reason);
  }
  return access;
}

std::vector<hsize_t> h5_dims(hid_t space, std::string_view where) {
  const H5S_class_t kind = H5Sget_simple_extent_type(space);
  if (kind == H5S_SCALAR) return {};
  const int rank = kind == H5S_SIMPLE ? H5Sget_simple_extent_ndims(space) : -1;
  if (rank < 0) fail("{}: it has no shape", where);
  std::vector<hsize_t> dims(rank);
  H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  return dims;
}

std::vector<std::pair<std::string, H5L_type_t>> h5_links(hid_t group, std::string_view where) {
  using Links = std::vector<std::pair<std::string, H5L_type_t>>;
  Links links;
  const auto add = [](hid_t, const char* name, const H5L_info_t* link, void* out) -> herr_t {
    static_cast<Links*>(out)->emplace_back(name, link->type);
    return 0;
  };
  if (H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &links) < 0) {
    fail("{}: {}", where, h5_error().reason);
  }
  return links;
}

}  // namespace focus
