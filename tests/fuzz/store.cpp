#include "data/tensors/store.h"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <bit>

#include "data/files/checksum.h"
#include "data/files/hdf5.h"
#include "data/tensors/store_scan.h"
#include "tests/fuzz/harness.h"
#include "tests/support/temp_folder.h"

namespace {

using namespace focus;

/// Takes an input apart; zeros follow its end.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return value;
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int i = byte() % 9; i > 0; --i) value = value << 8 | byte();
    return value;
  }
  std::string text() {
    std::string value(byte() % 40, '\0');
    for (char& c : value) c = static_cast<char>(byte());
    return value;
  }
  /// One of the names that a store has, or any other.
  std::string name() {
    constexpr std::array<const char*, 12> kNames = {
        "model",  "focus", "config.json", "format", "format_version", "kind",
        "digest", "xxh3",  "dtype",       "a.b",    "tokenizer",      "layer_000"};
    const std::size_t which = byte() % (kNames.size() + 1);
    return which < kNames.size() ? kNames[which] : text();
  }

 private:
  std::string_view bytes_;
};

/// Makes an HDF5 file of whatever objects, attributes, types, layouts and links the input asks for.
/// The library writes it, so it is well-formed: only what is ours is fuzzed here.
class Builder {
 public:
  Builder(Input& input, const std::filesystem::path& path) : input_(input) {
    const H5Handle access = h5_file_access();
    file_ = {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose};
    if (file_ < 0) fuzz::report("no HDF5 file can be made: " + h5_error().reason);
  }

  void build() {
    const std::uint8_t options = input_.byte();
    const H5Handle root(H5Gopen2(file_, "/", H5P_DEFAULT), H5Gclose);
    if ((options & 1) == 0) {
      attribute(root, "/", "format", std::string("focus"));
      attribute(root, "/", "format_version", std::int64_t{1});
      attribute(root, "/", "kind", std::string("model"));
    }
    for (int steps = 0; !input_.empty() && steps < 64; ++steps) step();
    if ((options & 2) == 0) attribute(root, "/", "digest", store_digest(contents_));
  }

 private:
  void step() {
    const std::uint8_t what = input_.byte() % 8;
    const std::string& parent = groups_[input_.byte() % groups_.size()];
    const H5Handle group(H5Gopen2(file_, parent.c_str(), H5P_DEFAULT), H5Gclose);
    if (what == 0) {
      const std::string name = input_.name();
      const H5Handle made(H5Gcreate2(group, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                          H5Gclose);
      // Names such as "a/b" and "." are paths to the library.
      if (made >= 0 && name.find_first_of("/.") == std::string::npos) {
        groups_.push_back((parent == "/" ? "/" : parent + "/") + name);
      }
    } else if (what == 1) {
      link(group);
    } else if (what == 2) {
      odd_attribute(group);
    } else if (what == 3) {
      any_attribute(group, parent);
    } else {
      dataset(group, parent);
    }
  }

  void link(hid_t group) {
    const std::string name = input_.name(), to = input_.name();
    const int kind = input_.byte() % 3;
    if (kind == 0)
      H5Lcreate_soft(to.c_str(), group, name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
    else if (kind == 1)
      H5Lcreate_external("other.h5", to.c_str(), group, name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
    else
      H5Lcreate_hard(file_, to.c_str(), group, name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
  }

  void any_attribute(hid_t object, const std::string& path) {
    const std::string name = input_.name();
    const int kind = input_.byte() % 4;
    AttributeValue value;
    if (kind == 0) value = static_cast<std::int64_t>(input_.number());
    if (kind == 1) value = input_.number();
    if (kind == 2) value = std::bit_cast<double>(input_.number());
    if (kind == 3) value = std::string(input_.text().c_str());
    attribute(object, path, name, value);
  }

  void attribute(hid_t object, const std::string& path, const std::string& name,
                 const AttributeValue& value) {
    if (write_attribute(object, name, value)) contents_.groups[path][name] = value;
  }

  /// One that the format knows; false where the library refuses it.
  bool write_attribute(hid_t object, const std::string& name, const AttributeValue& value) {
    const auto* text = std::get_if<std::string>(&value);
    const auto number = [&](hid_t type, const auto& stored) {
      return write_attribute(object, name, type, H5S_SCALAR, &stored);
    };
    if (text != nullptr) {
      const H5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
      H5Tset_size(type, text->size() + 1);
      H5Tset_cset(type, H5T_CSET_UTF8);
      return write_attribute(object, name, type, H5S_SCALAR, text->c_str());
    }
    if (const auto* i = std::get_if<std::int64_t>(&value)) return number(H5T_STD_I64LE, *i);
    if (const auto* u = std::get_if<std::uint64_t>(&value)) return number(H5T_STD_U64LE, *u);
    return number(H5T_IEEE_F64LE, std::get<double>(value));
  }

  bool write_attribute(hid_t object, const std::string& name, hid_t type, H5S_class_t space_kind,
                       const void* value) {
    const H5Handle space(H5Screate(space_kind), H5Sclose);
    const H5Handle made(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT),
                        H5Aclose);
    return made >= 0 && (value == nullptr || H5Awrite(made, type, value) >= 0);
  }

  /// One of a type, a padding or a space that a store never has, or a string of fixed length.
  void odd_attribute(hid_t object) {
    const std::string name = input_.name();
    const std::uint8_t kind = input_.byte();
    const std::string text = input_.text() + '\0';
    const H5Handle fixed(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(fixed, text.size());
    H5Tset_strpad(fixed, static_cast<H5T_str_t>(kind / 8 % 3));
    const H5Handle variable(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(variable, H5T_VARIABLE);
    const double zero = 0;
    if (kind % 4 == 0) write_attribute(object, name, fixed, H5S_SCALAR, text.data());
    // Never written: a null pointer.
    if (kind % 4 == 1) write_attribute(object, name, variable, H5S_SCALAR, nullptr);
    if (kind % 4 == 2) write_attribute(object, name, H5T_STD_I16BE, H5S_SCALAR, &zero);
    if (kind % 4 == 3) write_attribute(object, name, H5T_IEEE_F64LE, H5S_NULL, nullptr);
  }

  void dataset(hid_t group, const std::string& parent) {
    struct Type {
      hid_t id;
      const char* name;
    };
    const std::array<Type, 8> types = {{{H5T_IEEE_F32LE, "f32"},
                                        {H5T_IEEE_F64LE, "f64"},
                                        {H5T_STD_U8LE, "u8"},
                                        {H5T_STD_U64LE, "u64"},
                                        {H5T_STD_U16LE, "bf16"},
                                        {H5T_STD_U16LE, "f16"},
                                        {H5T_STD_I32LE, "i32"},
                                        {H5T_C_S1, "string"}}};
    const Type type = types[input_.byte() % types.size()];
    const std::string name = input_.name();
    std::vector<hsize_t> dims(input_.byte() % 8);
    std::uint64_t elements = 1;
    for (hsize_t& dim : dims) {
      dim = input_.byte() % 16 == 0 ? input_.number() : input_.byte() % 5;
      if (__builtin_mul_overflow(elements, dim, &elements)) elements = ~std::uint64_t{0};
    }
    const H5Handle create(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_fill_time(create, H5D_FILL_TIME_NEVER);
    const int rank = static_cast<int>(dims.size());
    const std::uint8_t layout = input_.byte();
    if (layout % 4 == 0) H5Pset_layout(create, H5D_CONTIGUOUS);
    if (layout % 4 == 1) H5Pset_layout(create, H5D_COMPACT);
    if (layout % 4 == 2) H5Pset_external(create, "other.bin", 0, H5F_UNLIMITED);
    if (layout % 4 == 3) set_chunks(create, layout, dims);
    const H5Handle space(
        rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dims.data(), nullptr), H5Sclose);
    const H5Handle made(
        H5Dcreate2(group, name.c_str(), type.id, space, H5P_DEFAULT, create, H5P_DEFAULT),
        H5Dclose);
    if (made < 0) return;
    const std::uint8_t honest = input_.byte();
    std::vector<std::byte> bytes;
    if (elements < 4096 && honest % 4 != 3 && layout % 4 != 2) {
      bytes.assign(elements * H5Tget_size(type.id), std::byte{input_.byte()});
      if (!bytes.empty()) H5Dwrite(made, type.id, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data());
    }
    const std::string checksum = honest % 4 == 2 ? "wrong" : xxh3_hex(bytes);
    write_attribute(made, "xxh3", checksum);
    if (H5Tequal(type.id, H5T_STD_U16LE) > 0)
      write_attribute(made, "dtype", std::string(type.name));
    contents_.datasets[(parent == "/" ? "/" : parent + "/") + name] = {
        .type = type.name, .shape = {dims.begin(), dims.end()}, .checksum = checksum};
  }

  void set_chunks(hid_t create, std::uint8_t kind, const std::vector<hsize_t>& dims) {
    std::vector<hsize_t> chunk = dims;
    for (hsize_t& dim : chunk) dim = std::clamp<hsize_t>(kind % 8 == 7 ? 2 : dim, 1, 1 << 20);
    H5Pset_chunk(create, static_cast<int>(chunk.size()), chunk.data());
    if ((kind & 16) != 0) H5Pset_fletcher32(create);
    if ((kind & 32) != 0) H5Pset_deflate(create, 6);
    if ((kind & 64) != 0) H5Pset_shuffle(create);
    if ((kind & 128) != 0) H5Pset_nbit(create);
  }

  Input& input_;
  H5Handle file_;
  StoreContents contents_;
  std::vector<std::string> groups_ = {"/"};
};

/// Reads all there is, by every way there is.
void read_all(const StoreReader& store, std::size_t bytes) {
  const auto attempt = [&](auto&& read) { fuzz::run_loader(bytes, read); };
  for (const char* name : {"format", "format_version", "kind", "digest", "model"}) {
    attempt([&] { store.string_attribute("/", name); });
    attempt([&] { store.int_attribute("/", name); });
    attempt([&] { store.uint_attribute("/", name); });
    attempt([&] { store.double_attribute("/", name); });
  }
  for (const std::string& path : store.all_datasets()) {
    attempt([&] { store.text(path); });
    attempt([&] { store.tensor(path); });
  }
  for (const std::string& name : store.list("/")) {
    attempt([&] { store.list("/" + name); });
    attempt([&] {
      const auto source = store.source("/" + name);
      for (const TensorInfo& info : source->tensors()) source->read(info.name);
    });
  }
  attempt([&] { store.verify(); });
}

}  // namespace

/// A store that the HDF5 library wrote as the input says. Bytes that are no well-formed HDF5 are
/// not tried: the library itself breaks on them, which is why stores are for trusted files.
void focus::fuzz::try_input(std::string_view input) {
  h5_prepare();
  static const TempFolder folder;
  const std::filesystem::path path = folder / "store.h5";
  Input rest(input);
  Builder(rest, path).build();
  const std::size_t bytes = std::filesystem::file_size(path);
  const bool read = run_loader(bytes, [&] { read_all(StoreReader(path), bytes); });
  if (input.empty() && !read) report("a store with nothing in it is refused");
}
