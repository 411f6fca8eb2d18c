#pragma once

#include "autograd/base/check.h"
#include "data/files/hdf5.h"
#include "tests/support/compare.h"
#include "tests/support/golden_folders.h"

// Golden files: what the real libraries answer. They are read from the folder that the environment
// variable FOCUS_GOLDEN_DIR names, or else from tests/golden; every file that is found there is
// run, and every size and option comes from the file.
namespace focus {

/// The entries of a golden sub-folder that fit, as paths relative to golden_folder(), sorted.
inline std::vector<std::string> golden_entries(const std::string& folder,
                                               const std::string& ending) {
  std::vector<std::string> found;
  const auto root = golden_folder() / folder;
  if (!std::filesystem::is_directory(root)) return found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string name = entry.path().string();
    if (name.ends_with(ending))
      found.push_back(std::filesystem::relative(entry.path(), golden_folder()).string());
  }
  std::ranges::sort(found);
  return found;
}

/// A test's name from a path: letters, digits and underscores.
inline std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

/// An HDF5 file as h5py writes it.
class GoldenFile {
 public:
  explicit GoldenFile(const std::string& relative) : path_((golden_folder() / relative).string()) {
    h5_prepare();
    file_ = {H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose};
    if (file_ < 0) fail("{}: cannot be opened as HDF5", path_);
  }

  bool has(const std::string& name) const {
    std::string prefix;
    for (const char c : name + "/") {
      if (c == '/' && H5Lexists(file_, prefix.c_str(), H5P_DEFAULT) <= 0) return false;
      prefix += c;
    }
    return true;
  }

  Tensor tensor(const std::string& name) const {
    const auto [dims, values] = read(name);
    Tensor tensor{Shape(dims)};
    std::ranges::transform(values, tensor.data(), [](double x) { return static_cast<Real>(x); });
    return tensor;
  }
  std::vector<double> numbers(const std::string& name) const { return read(name).second; }
  double number(const std::string& name) const { return read(name).second.at(0); }
  std::vector<std::int32_t> ids(const std::string& name) const {
    std::vector<std::int32_t> out;
    for (const double x : numbers(name)) out.push_back(static_cast<std::int32_t>(x));
    return out;
  }
  std::vector<Index> dims(const std::string& name) const { return read(name).first; }

  /// Full names of the data sets below a group.
  std::vector<std::string> names(const std::string& group) const {
    std::vector<std::string> found;
    collect(group, found);
    return found;
  }

  double attribute(const std::string& name) const {
    const H5Handle attr(H5Aopen(file_, name.c_str(), H5P_DEFAULT), H5Aclose);
    double value = 0;
    if (attr < 0 || H5Aread(attr, H5T_NATIVE_DOUBLE, &value) < 0)
      fail("{}: attribute {} is missing", path_, name);
    return value;
  }
  double attribute_or(const std::string& name, double otherwise) const {
    return H5Aexists(file_, name.c_str()) > 0 ? attribute(name) : otherwise;
  }
  std::string text_attribute(const std::string& name) const {
    const H5Handle attr(H5Aopen(file_, name.c_str(), H5P_DEFAULT), H5Aclose);
    if (attr < 0) fail("{}: attribute {} is missing", path_, name);
    const H5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    char* value = nullptr;
    if (H5Aread(attr, type, static_cast<void*>(&value)) < 0)
      fail("{}: attribute {} is no text", path_, name);
    std::string text = value;
    H5free_memory(value);
    return text;
  }

 private:
  std::pair<std::vector<Index>, std::vector<double>> read(const std::string& name) const {
    const H5Handle set(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose);
    if (set < 0) fail("{}: {} is missing", path_, name);
    const H5Handle space(H5Dget_space(set), H5Sclose);
    std::vector<Index> dims;
    std::size_t size = 1;
    for (const hsize_t dim : h5_dims(space, path_)) {
      dims.push_back(static_cast<Index>(dim));
      size *= dim;
    }
    std::vector<double> values(size);
    if (size > 0 &&
        H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0)
      fail("{}: {} cannot be read", path_, name);
    return {dims, values};
  }

  void collect(const std::string& group, std::vector<std::string>& found) const {
    const H5Handle object(H5Oopen(file_, group.c_str(), H5P_DEFAULT), H5Oclose);
    if (object < 0) return;
    if (H5Iget_type(object) == H5I_DATASET) {
      found.push_back(group);
      return;
    }
    for (const auto& [name, type] : h5_links(object, path_)) collect(group + "/" + name, found);
  }

  std::string path_;
  H5Handle file_;
};

/// A bound for what a reference in float64 computes.
inline constexpr double kReferenceTolerance = tolerance(2e-5, 1e-9);
inline void expect_close(const std::string& what, const Tensor& actual,
                         const std::vector<double>& expected, double most = kReferenceTolerance) {
  EXPECT_LE(relative_error(actual.span(), expected), most) << what;
}

/// x [batch, a, b, width] as [batch, b, a, width]: golden files have heads before tokens.
inline Tensor swap_heads(const Tensor& x) { return transpose(Variable(x), 1, 2).value(); }

}  // namespace focus
