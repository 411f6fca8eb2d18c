#pragma once

#include <hdf5.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace focus {

/// An HDF5 identifier that closes itself. Converts to hid_t, so that it goes where the library
/// wants one.
class H5Handle {
 public:
  using Close = herr_t (*)(hid_t);

  H5Handle() = default;
  H5Handle(hid_t id, Close closer) : id_(id), close_(closer) {}
  ~H5Handle() { close(); }
  H5Handle(H5Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  H5Handle& operator=(H5Handle&& other) noexcept {
    if (this != &other) {
      close();
      id_ = std::exchange(other.id_, H5I_INVALID_HID);
      close_ = other.close_;
    }
    return *this;
  }

  operator hid_t() const { return id_; }
  /// Negative where the library failed to close it.
  herr_t close() { return id_ >= 0 ? close_(std::exchange(id_, H5I_INVALID_HID)) : 0; }

 private:
  hid_t id_ = H5I_INVALID_HID;
  Close close_ = nullptr;
};

/// What the library's error stack says went wrong, innermost first, as a part of one line.
struct H5Error {
  std::string reason;
  int system_error = 0;  // errno where a read or write failed, else 0
};

/// Turns the library's own printing off (it does so for each thread), keeps it from loading filter
/// plug-ins and from clearing up when the process ends. Cheap; whatever uses the library calls it
/// first.
void h5_prepare();
/// Reads the error stack of this thread and clears it.
H5Error h5_error();
/// Throws what the error stack says of an object of a file that could not be read.
[[noreturn]] void h5_fail_reading(const std::filesystem::path& file, std::string_view object);

/// The properties by which all our files are opened and created.
H5Handle h5_file_access();

/// The dimensions of a data space; a scalar has none. Throws std::runtime_error with `where` for a
/// space of another kind.
std::vector<hsize_t> h5_dims(hid_t space, std::string_view where);

/// The links of a group with their kinds, by name, without following them. Throws
/// std::runtime_error with `where`.
std::vector<std::pair<std::string, H5L_type_t>> h5_links(hid_t group, std::string_view where);

}  // namespace focus
