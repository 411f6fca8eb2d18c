#include <gmock/gmock.h>

#include <cstring>

#include "data/files/checksum.h"
#include "data/files/input_file.h"
#include "data/tensors/safetensors.h"
#include "data/tensors/store.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(MappedFile, IsWhatTheFileHolds) {
  const TempFolder folder;
  write_text(folder / "a", "some bytes");
  std::unique_ptr<MappedFile> mapped;
  {
    const InputFile file(folder / "a");
    mapped = std::make_unique<MappedFile>(file.descriptor(), 10, folder / "a");
  }
  fs::remove(folder / "a");  // neither its name nor its descriptor is needed
  EXPECT_EQ(text_of(mapped->bytes()), "some bytes");
}

TEST(MappedFile, IsFoundByItsAddresses) {
  const TempFolder folder;
  write_text(folder / "a", std::string(10'000, 'a'));
  write_text(folder / "b", "b");
  const InputFile a(folder / "a"), b(folder / "b");
  const void* inside = nullptr;
  {
    const MappedFile first(a.descriptor(), 10'000, folder / "a");
    const MappedFile second(b.descriptor(), 1, folder / "b");
    inside = first.bytes().data() + 9'999;
    EXPECT_EQ(mapped_file_at(inside), (folder / "a").string());
    EXPECT_EQ(mapped_file_at(second.bytes().data()), (folder / "b").string());
    EXPECT_EQ(mapped_file_at(&inside), nullptr);
  }
  EXPECT_EQ(mapped_file_at(inside), nullptr);
}

TEST(MappedFile, RefusesMoreThanThereIs) {
  const TempFolder folder;
  write_text(folder / "a", "some bytes");
  const InputFile file(folder / "a");
  EXPECT_THAT(error_of([&] { MappedFile(file.descriptor(), 11, folder / "a"); }),
              HasSubstr("a: the file became shorter while it was read; get it again"));
}

TEST(MappedSafetensors, BytesAreThoseThatAreRead) {
  const TempFolder folder;
  const Tensor x = randn({30, 7}, 1);
  write_safetensors(folder / "model.safetensors", {{"x", x}, {"y", x}});
  std::optional<TensorBytes> mapped;
  std::vector<std::byte> read;
  {
    const SafetensorsFile file(folder / "model.safetensors");
    mapped = file.map("y");
    file.read_raw("y", read);
  }
  ASSERT_TRUE(mapped);  // outlives its source
  EXPECT_TRUE(std::ranges::equal(mapped->bytes, read));
}

/// A file of one tensor of two bf16 numbers whose header is so long.
void write_file(const fs::path& path, std::size_t header_bytes) {
  std::string header = R"({"x":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})";
  header.resize(header_bytes, ' ');
  std::uint64_t size = header.size();
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  write_text(path, bytes + header + std::string("\x80\x3f\x00\x40", 4));
}

TEST(MappedSafetensors, TensorsAtOddAddressesAreCopied) {
  const TempFolder folder;
  for (const std::size_t header : {64, 65}) {
    write_file(folder / "model.safetensors", header);
    const SafetensorsFile file(folder / "model.safetensors");
    EXPECT_EQ(file.map("x").has_value(), header % 2 == 0);
    const TensorBytes bytes = file.bytes("x");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.bytes.data()) % 2, 0u);
    EXPECT_EQ(text_of(bytes.bytes), std::string("\x80\x3f\x00\x40", 4));
  }
}

TEST(MappedSafetensors, ShorterFileIsRefused) {
  const TempFolder folder;
  write_file(folder / "model.safetensors", 64);
  const SafetensorsFile file(folder / "model.safetensors");
  fs::resize_file(folder / "model.safetensors", 74);
  EXPECT_THAT(error_of([&] { file.map("x"); }), HasSubstr("became shorter"));
}

/// A store of one large tensor, /model/x.
void write_store(const fs::path& path, std::uint64_t seed) {
  StoreWriter store(path, "model");
  store.attribute("/model", "fingerprint", "x");
  store.tensor("/model/x", randn({1000, 64}, seed));
  store.commit();
}

TEST(MappedStore, LargeTensorsLieOnPagesInTheirType) {
  const TempFolder folder;
  const Tensor real = randn({1000, 64}, 1);
  std::vector<std::byte> halves;
  pack(real.span(), Dtype::bf16, halves);
  {
    StoreWriter store(folder / "a.h5", "model");
    store.attribute("/model", "fingerprint", "x");
    store.tensor("/model/real", real);
    store.tensor_raw("/model/half", std::array<Index, 2>{1000, 64}, Dtype::bf16, halves);
    store.tensor("/model/small", randn({1, 64}, 2));
    store.commit();
  }
  const auto source = StoreReader(folder / "a.h5").source("/model");
  EXPECT_EQ(source->find("half")->dtype, Dtype::bf16);
  const auto half = source->map("half"), whole = source->map("real");
  ASSERT_TRUE(half && whole);
  EXPECT_TRUE(std::ranges::equal(half->bytes, halves));
  EXPECT_TRUE(std::ranges::equal(whole->bytes, std::as_bytes(real.span())));
  for (const auto& mapped : {half, whole})
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapped->bytes.data()) % 4096, 0u);
  EXPECT_FALSE(source->map("small"));  // in the object's header
  EXPECT_EQ(source->bytes("small").bytes.size(), 64 * sizeof(Real));
  EXPECT_EQ(fs::file_size(folder / "a.h5") / 100'000, (1000 * 64 * (2 + sizeof(Real))) / 100'000);
}

TEST(MappedStore, DamageIsFoundWhereItIsAskedFor) {
  const TempFolder folder;
  write_store(folder / "a.h5", 1);
  flip_bit(folder / "a.h5", fs::file_size(folder / "a.h5") / 2 * 8);
  const StoreReader store(folder / "a.h5");
  const auto source = store.source("/model");
  EXPECT_TRUE(source->map("x"));
  const std::string damaged = "data set '/model/x' is damaged: it does not match its checksum";
  EXPECT_THAT(error_of([&] { source->verify("x"); }), HasSubstr(damaged));
  EXPECT_THAT(error_of([&] { store.verify(); }), HasSubstr(damaged));
  EXPECT_THAT(error_of([&] { source->read("x"); }), HasSubstr(damaged));
}

TEST(MappedStore, IsTheOneThatWasOpened) {
  const TempFolder folder;
  write_store(folder / "a.h5", 1);
  const auto source = StoreReader(folder / "a.h5").source("/model");
  write_store(folder / "a.h5", 2);
  EXPECT_TRUE(
      std::ranges::equal(source->map("x")->bytes, std::as_bytes(randn({1000, 64}, 1).span())));
}

/// As if it had been written an hour ago.
void age(const fs::path& path) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(1));
}

TEST(FileIdentity, TellsChangedFiles) {
  const TempFolder folder;
  write_text(folder / "a", "1");
  const FileIdentity before = identity_of(folder / "a");
  EXPECT_EQ(identity_of(folder / "a"), before);
  write_text(folder / "b", "1");
  EXPECT_NE(identity_of(folder / "b"), before);
  age(folder / "a");
  EXPECT_NE(identity_of(folder / "a"), before);
  EXPECT_THAT(error_of([&] { identity_of(folder / "none"); }), HasSubstr("none"));
}

TEST(FileIdentity, NotesAreOfTheseFilesAlone) {
  const TempFolder folder;
  FileIdentity file{.path = "/some/file", .bytes = 3, .modified = 5, .changed = 6};
  EXPECT_FALSE(recall_note(folder.path(), {file}));
  keep_note(folder.path(), {file}, "word");
  EXPECT_EQ(recall_note(folder.path(), {file}), "word");
  FileIdentity other = file;
  other.bytes = 4;
  EXPECT_FALSE(recall_note(folder.path(), {other}));
  EXPECT_FALSE(recall_note(folder.path(), {file, other}));
  EXPECT_FALSE(recall_note({}, {file}));
  write_text(folder / "a", "1");
  const FileIdentity fresh = identity_of(folder / "a");
  keep_note(folder.path(), {fresh}, "word");  // it was just changed: its times may not tell more
  EXPECT_FALSE(recall_note(folder.path(), {fresh}));
}

}  // namespace
}  // namespace focus
