#include "data/tokenizers/tokenizer.h"

#include <algorithm>
#include <array>

#include "autograd/base/check.h"
#include "data/files/checksum.h"
#include "data/files/input_file.h"
#include "data/text/text.h"
#include "data/tokenizers/tokenizer_config.h"

namespace focus {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() : Tokenizer("bytes", {}) {}

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids(text.size());
    std::transform(text.begin(), text.end(), ids.begin(),
                   [](char byte) { return static_cast<unsigned char>(byte); });
    return ids;
  }
  std::int32_t vocab_size() const override { return 256; }

 private:
  std::string decode_valid(std::span<const std::int32_t> ids) const override {
    std::string text(ids.size(), '\0');
    std::transform(ids.begin(), ids.end(), text.begin(),
                   [](std::int32_t id) { return static_cast<char>(id); });
    return text;
  }
};

struct KnownFiles {
  const char* kind;
  std::vector<std::string> names;  // the first one may name all of them in a path
};

const std::array<KnownFiles, 4>& known_files() {
  static const std::array<KnownFiles, 4> known = {{
      {"tokenizer.json", {"tokenizer.json"}},
      {"sentencepiece", {"tokenizer.model"}},
      {"gpt2", {"encoder.json", "vocab.bpe"}},
      {"gpt2", {"vocab.json", "merges.txt"}},
  }};
  return known;
}

std::unique_ptr<Tokenizer> load_files(const KnownFiles& known, const std::filesystem::path& first) {
  const std::filesystem::path folder = first.parent_path();
  // A tokenizer.json may lie there packed, as texts may.
  const bool json = known.kind == std::string("tokenizer.json");
  TokenizerFiles files = {{known.names[0], json ? read_text_file(first) : read_file(first)}};
  for (std::size_t i = 1; i < known.names.size(); ++i)
    files[known.names[i]] = read_file(folder / known.names[i]);
  for (const char* name : {kTokenizerConfig, kAddedTokens, kSpecialTokensMap}) {
    const bool in_json =
        json && name != std::string(kTokenizerConfig);  // a tokenizer.json has them in itself
    if (!in_json && is_there(folder / name)) files[name] = read_file(folder / name);
  }
  return make_tokenizer(known.kind, files, first.string());
}

}  // namespace

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  const std::int32_t limit = vocab_size();
  for (const std::int32_t id : ids)
    check(id >= 0 && id < limit, "decode: token {} is outside the tokenizer's vocabulary of {}", id,
          limit);
  return decode_valid(ids);
}

std::vector<std::int32_t> Tokenizer::encode_with_special(std::string_view text) const {
  std::vector<std::int32_t> ids = encode(text);
  ids.insert(ids.begin(), prefix().begin(), prefix().end());
  ids.insert(ids.end(), suffix().begin(), suffix().end());
  return ids;
}

std::string Tokenizer::fingerprint() const {
  Checksum checksum;
  checksum.update(kind_);
  for (const auto& [name, bytes] : files_) {
    checksum.update(fmt::format("\n{} {}\n", name, bytes.size()));
    checksum.update(bytes);
  }
  return checksum.hex();
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, const TokenizerFiles& files,
                                          const std::string& where) {
  if (kind == "bytes") return std::make_unique<ByteTokenizer>();
  if (kind == "sentencepiece") return make_sentencepiece_tokenizer(files, where);
  if (kind == "tokenizer.json" || kind == "gpt2") return make_bpe_tokenizer(kind, files, where);
  fail("{}: there is no tokenizer of kind '{}': use bytes, tokenizer.json, sentencepiece or gpt2",
       where, kind);
}

std::unique_ptr<Tokenizer> find_tokenizer(const std::filesystem::path& folder) {
  for (const KnownFiles& known : known_files()) {
    const bool complete = std::all_of(known.names.begin(), known.names.end(),
                                      [&](const auto& name) { return is_there(folder / name); });
    if (complete) return load_files(known, folder / known.names[0]);
  }
  return nullptr;
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  if (path == "bytes") return make_tokenizer("bytes", {});
  if (is_directory(path)) {
    if (auto tokenizer = find_tokenizer(path)) return tokenizer;
    fail(
        "{}: no tokenizer in this folder: it needs tokenizer.json, tokenizer.model, encoder.json "
        "with vocab.bpe, or vocab.json with merges.txt",
        path.string());
  }
  if (!is_there(path))
    fail("{}: no such tokenizer: give a folder, a tokenizer file, or bytes", path.string());
  const std::string name = path.filename().string();
  for (const KnownFiles& known : known_files())
    if (name == known.names[0]) return load_files(known, path);
  // Files under another name (my-tokenizer.json, tok512.model) go by their ending.
  if (path.extension() == ".json" || name.ends_with(".json.xz"))
    return load_files(known_files()[0], path);
  if (path.extension() == ".model") return load_files(known_files()[1], path);
  fail(
      "{}: not a tokenizer: expected a .json, a .json.xz or a .model file, or a folder that holds "
      "one",
      path.string());
}

}  // namespace focus
