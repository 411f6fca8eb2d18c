#include <set>

#include "data/tokens/token_file.h"
#include "tests/reliability/campaign.h"

// A flipped bit in a file of ours is found, or nothing that is read from the file changes; a file
// that was cut short is refused at every length.
namespace focus {
namespace {

/// A kind of file: how one is made, and all that can be read from it as text, checked.
struct Kind {
  std::string name;
  std::function<std::string()> make;
  std::function<std::string(const std::string& path)> read;
  bool small = true;  // in the long form every bit of it
  int most() const { return small ? std::numeric_limits<int>::max() : 10'000; }
};
void PrintTo(const Kind& kind, std::ostream* stream) { *stream << kind.name; }

/// Names, types and bits of all there is.
std::string read_store(const std::string& path) {
  const StoreReader store(path);
  store.verify();
  std::string all = store.kind();
  for (const std::string& name : store.all_datasets()) {
    all += "\n" + name + " ";
    if (name.find('.', name.rfind('/')) != std::string::npos) {
      all += store.text(name);
    } else {
      const Tensor tensor = store.tensor(name);
      all += tensor.shape().str() + xxh3_hex(std::as_bytes(tensor.span()));
    }
  }
  return all;
}

std::string read_tokens(const std::string& path) {
  const TokenFile file = TokenFile::open(path);
  std::vector<std::int32_t> ids(file.size());
  file.copy(0, ids);
  std::string all = fmt::format("{} {} {}", file.vocab_size(), file.tokenizer_fingerprint(),
                                xxh3_hex(std::as_bytes(std::span(ids))));
  for (Index i = 0; i < file.num_documents(); ++i)
    all += fmt::format(" {}", file.document(i).begin);
  return all;
}

std::string make_tokens() {
  const std::string path = cli().fresh("ids.tokens");
  const std::vector<std::int32_t> ids(300, 7);
  const std::vector<Index> documents = {0, 100, 300};
  TokenFile::from_tokens(ids, documents, 50, "0123456789abcdef0123456789abcdef").save(path);
  return path;
}

std::string make_checkpoint() {
  const std::string out = cli().fresh("run");
  cli().must_run(cli().retrofit({"out=" + out, "--stop-at", "2"}));
  return out + "/checkpoints/" + lines_of(read_text(out + "/checkpoints/latest")).at(0);
}

class Bits : public testing::TestWithParam<Kind> {
 protected:
  /// What is read from the file; empty where it is refused, by a line that names it.
  static std::string read(const std::string& path) {
    try {
      return GetParam().read(path);
    } catch (const std::runtime_error& error) {
      EXPECT_TRUE(contains(error.what(), path)) << error.what();
      EXPECT_FALSE(contains(error.what(), "\n")) << error.what();
      return "";
    }
  }
};

TEST_P(Bits, FlippedAreFoundOrHarmless) {
  const std::string path = cli().fresh("copy");
  fs::copy_file(GetParam().make(), path);
  const std::string whole = read(path);
  ASSERT_FALSE(whole.empty());
  const int bits = static_cast<int>(fs::file_size(path) * 8);
  std::set<std::size_t> harmless_bytes;
  int tried = 0, harmless = 0;
  for (const int bit : some_of(bits, GetParam().name, 1000, GetParam().most())) {
    const auto at = static_cast<std::size_t>(bit - 1);
    flip_bit(path, at);
    const std::string now = read(path);
    if (!now.empty()) {
      EXPECT_EQ(now, whole) << "bit " << at;
      harmless_bytes.insert(at / 8);
      ++harmless;
    }
    flip_bit(path, at);
    ++tried;
    if (HasFailure()) return;
  }
  fmt::print("{}: {} bits of {} flipped, {} found, {} harmless, in {} bytes\n", GetParam().name,
             tried, bits, tried - harmless, harmless, harmless_bytes.size());
  EXPECT_EQ(read(path), whole);
}

TEST_P(Bits, CutShortIsRefused) {
  const std::string path = cli().fresh("copy");
  fs::copy_file(GetParam().make(), path);
  const std::string bytes = read_text(path);
  for (const int size :
       some_of(static_cast<int>(bytes.size()), GetParam().name, 200, GetParam().most())) {
    fs::resize_file(path, static_cast<std::size_t>(size - 1));
    EXPECT_EQ(read(path), "") << size - 1 << " of " << bytes.size() << " bytes";
    if (HasFailure()) return;
    write_text(path, bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Reliability, Bits,
    testing::Values(Kind{"base", [] { return cli().base(); }, read_store, false},
                    Kind{"adapter", [] { return cli().adapter(); }, read_store},
                    Kind{"checkpoint", make_checkpoint, read_store},
                    Kind{"tokens", make_tokens, read_tokens}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace focus
