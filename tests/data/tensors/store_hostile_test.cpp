// Stores that another program made or changed, by accident or with intent. Each file is sound but
// for one thing.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <functional>

#include "data/files/hdf5.h"
#include "data/tensors/store.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class HostileStore : public testing::Test {
 protected:
  void SetUp() override {
    h5_prepare();
    StoreWriter writer(path_, "model");
    writer.attribute("/train", "step", 7);
    writer.text("/config", "seed: 1\n");
    writer.tensor("/model/a", Tensor::full({3000}, 1));
    writer.commit();
  }

  /// Lets `change` loose on the file, by the library itself.
  void change(const std::function<void(hid_t)>& action) const {
    const H5Handle file(H5Fopen(path_.c_str(), H5F_ACC_RDWR, h5_file_access()), H5Fclose);
    ASSERT_GE(file, 0);
    action(file);
  }

  std::string open_error() const {
    return error_of([&] { StoreReader store(path_); });
  }
  struct Change {
    std::string error;
    std::function<void(hid_t)> action;
  };
  /// Each change alone is refused with its error.
  void expect_each(const std::vector<Change>& changes) const {
    const std::string pristine = read_text(path_);
    for (const Change& each : changes) {
      change(each.action);
      EXPECT_THAT(open_error(),
                  AllOf(HasSubstr("a.h5"), HasSubstr(each.error), Not(HasSubstr("\n"))));
      write_text(path_, pristine);
    }
  }

  /// Adds a data set without data.
  static void add(hid_t file, const char* path, hid_t type, std::vector<hsize_t> dims,
                  const std::function<void(hid_t)>& set = {}) {
    const H5Handle create(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    if (set) set(create);
    const H5Handle space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                         H5Sclose);
    const H5Handle dataset(H5Dcreate2(file, path, type, space, H5P_DEFAULT, create, H5P_DEFAULT),
                           H5Dclose);
    ASSERT_GE(dataset, 0) << h5_error().reason;
  }

  static H5Handle string_type(std::size_t size) {
    H5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type, size);
    return type;
  }
  static void add_attribute(hid_t file, const char* object, const char* name, hid_t type,
                            hid_t space, const void* data) {
    const H5Handle attribute(
        H5Acreate_by_name(file, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
        H5Aclose);
    ASSERT_GE(attribute, 0) << h5_error().reason;
    ASSERT_GE(H5Awrite(attribute, type, data), 0);
  }

  TempFolder folder_;
  fs::path path_ = folder_ / "a.h5";
  H5Handle scalar_{H5Screate(H5S_SCALAR), H5Sclose};
};

TEST_F(HostileStore, UnchangedIsAccepted) { EXPECT_EQ(open_error(), ""); }

TEST_F(HostileStore, LinksAndCycles) {
  H5L_class_t link_class{};
  link_class.version = H5L_LINK_CLASS_T_VERS;
  link_class.id = static_cast<H5L_type_t>(100);
  link_class.trav_func = [](const char*, hid_t, const void*, size_t, hid_t, hid_t) -> hid_t {
    ADD_FAILURE() << "the link was followed";
    return -1;
  };
  ASSERT_GE(H5Lregister(&link_class), 0);
  constexpr const char* kLink = "object '/model/b': a link";
  constexpr const char* kTwice = "object '/model/b': it is reached by two names, or in a cycle";
  expect_each(
      {{kLink, [](hid_t f) { H5Lcreate_soft("/config", f, "/model/b", 0, 0); }},
       {kLink, [](hid_t f) { H5Lcreate_external("/etc/passwd", "/x", f, "/model/b", 0, 0); }},
       {kLink, [&](hid_t f) { H5Lcreate_ud(f, "/model/b", link_class.id, nullptr, 0, 0, 0); }},
       {kTwice, [](hid_t f) { H5Lcreate_hard(f, "/config", f, "/model/b", 0, 0); }},
       {kTwice, [](hid_t f) { H5Lcreate_hard(f, "/", f, "/model/b", 0, 0); }}});
  H5Lunregister(link_class.id);
}

TEST_F(HostileStore, DataElsewhereOrInPieces) {
  const hsize_t size = 100;
  const H5Handle space(H5Screate_simple(1, &size, nullptr), H5Sclose);
  const auto set = [](const std::function<void(hid_t)>& layout) {
    return [layout](hid_t f) { add(f, "/b", H5T_IEEE_F32LE, {100}, layout); };
  };
  constexpr const char* kPieces = "object '/b': its data is not in one piece in this file";
  expect_each({{kPieces, set([](hid_t create) { H5Pset_external(create, "/etc/passwd", 0, 400); })},
               {kPieces, set([&](hid_t create) {
                  H5Pset_virtual(create, space, "/tmp/other.h5", "/x", space);
                })},
               {kPieces, set([&](hid_t create) {
                  H5Pset_chunk(create, 1, &size);
                  H5Pset_deflate(create, 9);
                })}});
}

TEST_F(HostileStore, ShapesThatTheFileHasNoDataFor) {
  const hsize_t large = hsize_t{1} << 32;
  expect_each({{"object '/b': declares 4400000000000 bytes but stores 0",
                [](hid_t f) { add(f, "/b", H5T_IEEE_F32LE, {1'100'000'000'000}); }},
               {"object '/b'", [&](hid_t f) {
                  add(f, "/b", H5T_IEEE_F32LE, {large, large, 2}, [](hid_t create) {
                    const std::array<hsize_t, 3> chunk{1, 1, 1};
                    H5Pset_chunk(create, 3, chunk.data());
                  });
                }}});
}

TEST_F(HostileStore, WrongTypes) {
  const H5Handle variable = string_type(H5T_VARIABLE);
  const H5Handle compound(H5Tcreate(H5T_COMPOUND, 8), H5Tclose);
  H5Tinsert(compound, "x", 0, H5T_IEEE_F32LE);
  const H5Handle list(H5Tvlen_create(H5T_IEEE_F32LE), H5Tclose);
  for (const hid_t type : {hid_t{variable}, hid_t{compound}, hid_t{list}, H5T_IEEE_F32BE,
                           H5T_STD_I32LE, H5T_STD_I64LE, H5T_STD_REF_OBJ, H5T_C_S1})
    expect_each(
        {{"object '/b': its type is not supported", [&](hid_t f) { add(f, "/b", type, {2}); }}});
}

TEST_F(HostileStore, ObjectsOfNoStore) {
  expect_each({{"object '/b': its data has 16 bits, but its attribute 'dtype' is neither",
                [](hid_t f) { add(f, "/b", H5T_STD_U16LE, {2}); }},
               {"object '/b': neither a group nor a data set",
                [](hid_t f) {
                  const H5Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
                  H5Tcommit2(f, "/b", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
                }},
               {"object '/b': it has no checksum",
                [](hid_t f) {
                  add(f, "/b", H5T_IEEE_F32LE, {2},
                      [](hid_t create) { H5Pset_layout(create, H5D_COMPACT); });
                }},
               {"groups nested deeper than 32", [](hid_t f) {
                  std::string path;
                  for (int i = 0; i < 40; ++i) {
                    path += "/g";
                    H5Handle(H5Gcreate2(f, path.c_str(), 0, 0, 0), H5Gclose);
                  }
                }}});
}

TEST_F(HostileStore, WrongAttributes) {
  const auto refused = [&](hid_t type, hid_t space, const void* data, const char* error) {
    expect_each({{error, [&](hid_t f) { add_attribute(f, "/train", "x", type, space, data); }}});
  };
  const std::array<double, 2> numbers{1, 2};
  const hsize_t two = 2;
  const H5Handle list(H5Screate_simple(1, &two, nullptr), H5Sclose),
      none(H5Screate(H5S_NULL), H5Sclose);
  refused(H5T_IEEE_F64LE, list, numbers.data(), "'/train@x': an attribute must be a single value");
  refused(H5T_IEEE_F64LE, none, numbers.data(), "must be a single value");
  refused(H5T_STD_I32LE, scalar_, numbers.data(),
          "must be a string of fixed length or a 64-bit number");
  const std::string text(70'000, 'x');
  refused(string_type(3), scalar_, "a\0b", "holds a NUL byte");
  refused(string_type(70'000), scalar_, text.data(), "too long");
  const char* pointer = text.c_str();
  refused(string_type(H5T_VARIABLE), scalar_, &pointer, "a string of fixed length");
}

TEST_F(HostileStore, ChangedNamesAndValues) {
  constexpr const char* kDigest = "do not match its attribute 'digest'";
  expect_each(
      {{kDigest, [](hid_t f) { H5Ldelete(f, "/config", H5P_DEFAULT); }},
       {kDigest, [](hid_t f) { H5Lmove(f, "/model/a", f, "/model/b", 0, 0); }},
       {kDigest, [](hid_t f) { H5Adelete_by_name(f, "/train", "step", H5P_DEFAULT); }},
       {kDigest,
        [](hid_t f) {
          const H5Handle train(H5Gopen2(f, "/train", H5P_DEFAULT), H5Gclose);
          const H5Handle step(H5Aopen(train, "step", H5P_DEFAULT), H5Aclose);
          const std::int64_t other = 8;
          ASSERT_GE(H5Awrite(step, H5T_STD_I64LE, &other), 0) << h5_error().reason;
        }},
       {"'digest' is missing", [](hid_t f) { H5Adelete(f, "digest"); }},
       {"not a focus checkpoint", [](hid_t f) { H5Adelete(f, "format"); }},
       {"'format_version' is not a version", [](hid_t f) { H5Adelete(f, "format_version"); }}});
}

TEST_F(HostileStore, ChangedDataIsFoundByVerifyAndByReading) {
  change([](hid_t f) {
    const H5Handle dataset(H5Dopen2(f, "/config", H5P_DEFAULT), H5Dclose);
    ASSERT_GE(H5Dwrite(dataset, H5T_STD_U8LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, "seed: 2\n"), 0);
  });
  const StoreReader store(path_);
  EXPECT_THAT(error_of([&] { store.verify(); }), HasSubstr("data set '/config' is damaged"));
  EXPECT_THAT(error_of([&] { store.text("/config"); }), HasSubstr("data set '/config' is damaged"));
}

TEST_F(HostileStore, OtherVersions) {
  for (const std::int64_t other : {kStoreVersion - 1, kStoreVersion + 1})
    expect_each({{fmt::format("format version {}, but this program reads version 1: use the focus "
                              "that wrote it",
                              other),
                  [&](hid_t f) {
                    const H5Handle version(H5Aopen(f, "format_version", H5P_DEFAULT), H5Aclose);
                    ASSERT_GE(H5Awrite(version, H5T_STD_I64LE, &other), 0);
                  }}});
}

TEST_F(HostileStore, PlainHdf5) {
  fs::remove(path_);
  H5Handle(H5Fcreate(path_.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  EXPECT_THAT(open_error(), HasSubstr("an HDF5 file, but not a focus checkpoint"));
}

}  // namespace
}  // namespace focus
