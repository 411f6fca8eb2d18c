#include "data/gguf/gguf_tokenizer.h"

#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "data/gguf/gguf.h"
#include "data/gguf/gguf_vocabulary.h"
#include "data/tokenizers/byte_level_bpe.h"
#include "data/tokenizers/tokenizer_config.h"
#include "tests/support/gguf_bytes.h"

namespace focus {
namespace {

using Ids = std::vector<std::int32_t>;
using testing::HasSubstr;

constexpr const char* kWhere = "model.gguf";

std::unique_ptr<Tokenizer> from_keys(const GgufFile& file) {
  const std::string bytes = file.bytes();
  return tokenizer_of(parse_gguf(std::as_bytes(std::span(bytes)), kWhere).metadata);
}

void expect_refused(const GgufFile& file, const std::string& message) {
  try {
    from_keys(file);
    ADD_FAILURE() << "taken, though it must say: " << message;
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(kWhere));
    EXPECT_THAT(error.what(), HasSubstr(message));
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
  }
}

/// The keys of a tokenizer, to be changed before they become a file.
struct Keys {
  std::string model = "gpt2";
  std::optional<std::string> pre;
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  std::map<std::string, std::uint32_t> ids;
  std::map<std::string, bool> flags;

  std::int32_t add(const std::string& token, std::int32_t type = 1, float score = 0) {
    tokens.push_back(token);
    types.push_back(type);
    if (model == "llama") scores.push_back(score);
    return static_cast<std::int32_t>(tokens.size()) - 1;
  }
  GgufFile file() const {
    GgufFile file;
    file.text("tokenizer.ggml.model", model);
    if (pre) file.text("tokenizer.ggml.pre", *pre);
    file.texts("tokenizer.ggml.tokens", tokens);
    if (!types.empty()) file.numbers("tokenizer.ggml.token_type", 5, types);
    if (!scores.empty()) file.numbers("tokenizer.ggml.scores", 6, scores);
    if (model == "gpt2") file.texts("tokenizer.ggml.merges", merges);
    for (const auto& [name, id] : ids) file.u32("tokenizer.ggml." + name + "_token_id", id);
    for (const auto& [name, value] : flags) file.flag("tokenizer.ggml." + name, value);
    return file;
  }
};

/// Ids 0 to 255 are the bytes in the order of the alphabet, then "12" and "123", "é" in UTF-8, then
/// two control tokens, one user-defined and one unused row.
Keys byte_level_keys(const std::string& pre) {
  Keys keys;
  keys.pre = pre;
  for (const std::string& character : ByteAlphabet::instance().sorted()) keys.add(character);
  keys.merges = {"1 2", "12 3"};
  keys.add("12");
  keys.add("123");
  keys.add("<s>", 3);
  keys.add("</s>", 3);
  keys.add("a b", 4);
  keys.add("[PAD261]", 5);
  keys.ids = {{"bos", 258}, {"eos", 259}};
  return keys;
}

/// A SentencePiece model: unk, bos, eos, 256 bytes, then pieces.
Keys sentencepiece_keys() {
  Keys keys;
  keys.model = "llama";
  keys.add("<unk>", 2);
  keys.add("<s>", 3);
  keys.add("</s>", 3);
  for (int byte = 0; byte < 256; ++byte) keys.add(fmt::format("<0x{:02X}>", byte), 6);
  for (const char* piece : {"\xE2\x96\x81", "a", "b", "c"}) keys.add(piece, 1, -10);
  keys.add("ab", 1, -1);
  keys.add("bc", 1, -2);
  keys.add("\u2581ab", 1, -3);
  keys.ids = {{"bos", 1}, {"eos", 2}, {"unknown", 0}};
  return keys;
}

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> found;
  for (const std::int32_t id : tokenizer.encode(text)) found.push_back(tokenizer.decode(Ids{id}));
  return found;
}

nlohmann::json config_of(const Tokenizer& tokenizer) {
  return nlohmann::json::parse(tokenizer.files().at(kTokenizerConfig));
}

TEST(GgufTokenizer, NoneWhereTheFileHasNone) {
  EXPECT_EQ(from_keys(GgufFile().text("general.architecture", "llama")), nullptr);
  EXPECT_EQ(from_keys(GgufFile().text("tokenizer.ggml.model", "none")), nullptr);
}

TEST(GgufTokenizer, OthersAreRefusedByName) {
  for (const char* model : {"t5", "bert", "rwkv", "gemma4", "llama4"}) {
    expect_refused(GgufFile().text("tokenizer.ggml.model", model), model);
    expect_refused(GgufFile().text("tokenizer.ggml.model", model), "--tokenizer FILE");
  }
  for (const char* pre : {"kimi-k2", "qwen35", ""})
    expect_refused(byte_level_keys(pre).file(), fmt::format("tokenizer.ggml.pre \"{}\"", pre));
}

TEST(GgufTokenizer, EachNameSplitsInItsWay) {
  const std::vector<std::string> singly = {"1", "2", "3", "1"}, all = {"123", "1"};
  const std::map<std::string, std::vector<std::string>> wanted = {
      {"gpt-2", all},        {"jais", all},          {"smollm", singly},
      {"command-r", singly}, {"llama-bpe", all},     {"qwen2", singly},
      {"megrez", singly},    {"dbrx", all},          {"default", all},
      {"gpt-4o", all},       {"tekken", singly},     {"deepseek-llm", all},
      {"deepseek-v3", all},  {"seed-coder", singly}, {"superbpe", {"1", "2", "3", "1"}}};
  for (const auto& [pre, expected] : wanted)
    EXPECT_EQ(pieces(*from_keys(byte_level_keys(pre).file()), "1231"), expected) << pre;
  // Digits are counted from the left in threes where the pattern does so.
  const auto llama3 = from_keys(byte_level_keys("llama-bpe").file());
  const auto gpt2 = from_keys(byte_level_keys("gpt-2").file());
  const std::vector<std::string> threes = {"0", "12", "3"}, run = {"0", "123"};
  EXPECT_EQ(pieces(*llama3, "0123"), threes);
  EXPECT_EQ(pieces(*gpt2, "0123"), run);
  Keys absent = byte_level_keys("");
  absent.pre.reset();
  EXPECT_EQ(from_keys(absent.file())->files().at("tokenizer.json"),
            from_keys(byte_level_keys("default").file())->files().at("tokenizer.json"));
}

TEST(GgufTokenizer, TheDefaultTakesPunctuationAndDigitsApart) {
  Keys keys = byte_level_keys("default");
  keys.merges.insert(keys.merges.end(), {"! \xC4\xA0", "3 1", "31 2"});
  keys.add("!\xC4\xA0");
  keys.add("31");
  keys.add("312");
  const auto tokenizer = from_keys(keys.file());
  const std::vector<std::string> punctuation = {"!", " ", "x"}, threes = {"123", "123", "1"};
  EXPECT_EQ(pieces(*tokenizer, "! x"), punctuation);
  EXPECT_EQ(pieces(*tokenizer, "1231231"), threes);
}

TEST(GgufTokenizer, NewerNamesSplitAsTheirModelsDo) {
  // What a merge joins was not taken apart.
  const auto split = [](const std::string& pre, const std::string& text,
                        std::vector<std::string> merges) {
    Keys keys = byte_level_keys(pre);
    for (const std::string& merge : merges) {
      std::string token = merge;
      token.erase(token.find(' '), 1);
      keys.merges.push_back(merge);
      keys.add(token);
    }
    return pieces(*from_keys(keys.file()), text);
  };
  using Pieces = std::vector<std::string>;
  // Digits in threes: from the left, from the right, one by one.
  EXPECT_EQ(split("deepseek-v3", "1231", {}), (Pieces{"123", "1"}));
  EXPECT_EQ(split("superbpe", "1123123", {}), (Pieces{"1", "123", "123"}));
  EXPECT_EQ(split("superbpe", "12312", {}), (Pieces{"12", "3", "12"}));
  // Line ends stay with punctuation, but for Seed-Coder; a sign stays with Latin letters.
  const std::vector<std::string> line = {"! \xC4\x8A"}, sign = {"# x"};
  EXPECT_EQ(split("deepseek-v3", "!\n", line), (Pieces{"!\n"}));
  EXPECT_EQ(split("seed-coder", "!\n", line), (Pieces{"!", "\n"}));
  EXPECT_EQ(split("superbpe", "!\n#x", {"! \xC4\x8A", "# x", "!\xC4\x8A #x"}), (Pieces{"!\n#x"}));
  EXPECT_EQ(split("deepseek-v3", "#x", sign), (Pieces{"#x"}));
  EXPECT_EQ(split("seed-coder", "x!#x", sign), (Pieces{"x", "!", "#", "x"}));
}

TEST(GgufTokenizer, OnlyLlama3TakesAWholeWordWithoutMerges) {
  for (const auto& [pre, count] :
       std::map<std::string, std::size_t>{{"llama-bpe", 1}, {"dbrx", 3}}) {
    Keys keys = byte_level_keys(pre);
    const std::int32_t word = keys.add("xyz");
    const auto ids = from_keys(keys.file())->encode("xyz");
    EXPECT_EQ(ids.size(), count) << pre;
    EXPECT_EQ(ids[0] == word, count == 1) << pre;
  }
}

TEST(GgufTokenizer, ControlAndUserDefinedTokensAreCutOutFirst) {
  const auto tokenizer = from_keys(byte_level_keys("gpt-2").file());
  const std::int32_t x = tokenizer->encode("x")[0];
  EXPECT_EQ(tokenizer->encode("<s>xa b</s>"), (Ids{258, x, 260, 259}));
  EXPECT_EQ(tokenizer->decode(Ids{258, x, 260, 259}), "<s>xa b</s>");
  EXPECT_TRUE(tokenizer->is_special(258));
  EXPECT_FALSE(tokenizer->is_special(260));
  // An unused row is reached by no text.
  const Ids padded = tokenizer->encode("[PAD261]");
  EXPECT_EQ(std::ranges::count(padded, 261), 0);
}

TEST(GgufTokenizer, TokensAroundATextAreWhatTheFileSays) {
  const auto ends = [](const std::string& pre, std::map<std::string, bool> flags) {
    Keys keys = byte_level_keys(pre);
    keys.flags = std::move(flags);
    const auto tokenizer = from_keys(keys.file());
    const Ids ids = tokenizer->encode_with_special("x");
    const auto config = config_of(*tokenizer);
    EXPECT_EQ(config.at("add_bos_token"), ids.front() == 258);
    EXPECT_EQ(config.at("add_eos_token"), ids.back() == 259);
    EXPECT_EQ(config.at("bos_token"), "<s>");
    EXPECT_EQ(config.at("eos_token"), "</s>");
    return std::pair(ids.front() == 258, ids.back() == 259);
  };
  EXPECT_EQ(ends("llama-bpe", {}), std::pair(true, false));
  EXPECT_EQ(ends("gpt-2", {}), std::pair(false, false));
  EXPECT_EQ(ends("llama-bpe", {{"add_bos_token", false}}), std::pair(false, false));
  EXPECT_EQ(ends("gpt-2", {{"add_bos_token", true}, {"add_eos_token", true}}),
            std::pair(true, true));
}

TEST(GgufTokenizer, QwenIsNormalizedAsItsOwnTokenizerDoes) {
  Keys keys = byte_level_keys("qwen2");
  keys.merges.push_back("\xC3\x83 \xC2\xA9");  // the two bytes of é
  const std::int32_t e_acute = keys.add("\xC3\x83\xC2\xA9");
  EXPECT_EQ(from_keys(keys.file())->encode("e\xCC\x81"), (Ids{e_acute}));
  keys.pre = "dbrx";
  EXPECT_NE(from_keys(keys.file())->encode("e\xCC\x81"), (Ids{e_acute}));
}

TEST(GgufTokenizer, ChatTemplatesGoIntoTheConfiguration) {
  GgufFile file = byte_level_keys("gpt-2").file();
  file.text("tokenizer.chat_template", "{{ messages }}");
  EXPECT_EQ(config_of(*from_keys(file)).at("chat_template"), "{{ messages }}");
  file.text("tokenizer.chat_template.tool_use", "{{ tools }}");
  const auto both = config_of(*from_keys(file)).at("chat_template");
  EXPECT_EQ(both, nlohmann::json::parse(
                      R"([{"name": "default", "template": "{{ messages }}"},
                          {"name": "tool_use", "template": "{{ tools }}"}])"));
}

TEST(GgufTokenizer, SentencePieceMergesByScore) {
  const auto tokenizer = from_keys(sentencepiece_keys().file());
  EXPECT_EQ(tokenizer->kind(), "sentencepiece");
  const std::int32_t mark = 259;
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{mark + 6, mark + 3}));    // ▁ab c
  EXPECT_EQ(tokenizer->encode(" bc"), (Ids{mark, mark, mark + 5}));  // ▁ ▁ bc
  EXPECT_EQ(tokenizer->encode("\n"), (Ids{mark, 3 + 10}));           // <0x0A>
  EXPECT_EQ(tokenizer->encode_with_special("c"), (Ids{1, mark, mark + 3}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("  a\n b")), "  a\n b");
  Keys keys = sentencepiece_keys();
  keys.flags = {{"add_space_prefix", false}};
  EXPECT_EQ(from_keys(keys.file())->encode("ab"), (Ids{mark + 4}));
  EXPECT_EQ(config_of(*tokenizer).at("tokenizer_class"), "PreTrainedTokenizerFast");
}

TEST(GgufTokenizer, CapitalsAndContractionsSplitAsGpt4oAndTekkenDo) {
  // "'t" and "STOPNow" are tokens where they stay together.
  const auto count = [](const char* pre, const std::string& word, const std::string& text) {
    Keys keys = byte_level_keys(pre);
    for (std::size_t end = 2; end <= word.size(); ++end) {
      keys.merges.push_back(word.substr(0, end - 1) + " " + word[end - 1]);
      keys.add(word.substr(0, end));
    }
    return from_keys(keys.file())->encode(text).size();
  };
  for (const char* pre : {"gpt-4o", "tekken"}) {
    EXPECT_EQ(count(pre, "ABab", "ABab"), 1u) << pre;      // capitals, then small letters
    EXPECT_EQ(count(pre, "abAB", "abAB"), 4u - 1) << pre;  // not after those
    EXPECT_EQ(count(pre, "./", "./"), 1u) << pre;
  }
  EXPECT_EQ(count("gpt-4o", "I'LL", "I'LL"), 1u);
  EXPECT_EQ(count("tekken", "I'LL", "I'LL"), 4u);
  EXPECT_EQ(count("llama-bpe", "abAB", "abAB"), 1u);
}

TEST(GgufTokenizer, BytesOfSentencePieceAreFoundByTheirNames) {
  Keys keys = sentencepiece_keys();
  const auto right = from_keys(keys.file());
  for (std::int32_t& type : keys.types) type = type == 6 ? 1 : type;
  const auto other = from_keys(keys.file());
  EXPECT_EQ(other->encode("a\xC3\xA9\n"), right->encode("a\xC3\xA9\n"));
  EXPECT_EQ(other->decode(other->encode("a\xC3\xA9\n")), "a\xC3\xA9\n");
}

TEST(GgufTokenizer, SentencePieceDefaultsAreThoseOfLlamaCpp) {
  Keys keys = sentencepiece_keys();
  keys.ids.clear();
  const auto tokenizer = from_keys(keys.file());
  EXPECT_EQ(tokenizer->bos_id(), 1);
  EXPECT_EQ(tokenizer->eos_id(), 2);
  EXPECT_TRUE(config_of(*tokenizer).at("add_bos_token"));
}

TEST(GgufTokenizer, UserDefinedPiecesAreWrittenAsInATextAndEmptyOnesTaken) {
  Keys keys = sentencepiece_keys();
  keys.add("", 1);
  const std::int32_t three = keys.add("   ", 4);
  keys.flags = {{"add_space_prefix", false}};
  const auto tokenizer = from_keys(keys.file());
  EXPECT_EQ(tokenizer->encode("a   a"), (Ids{260, three, 260}));
  EXPECT_EQ(tokenizer->decode(Ids{260, three, 260}), "a   a");
  // transformers looks for them by the pieces' texts.
  EXPECT_EQ(config_of(*tokenizer)["added_tokens_decoder"][std::to_string(three)]["content"],
            "\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81");
}

TEST(GgufTokenizer, IdsBeyondTheVocabularyCountAsNotSaid) {
  for (const char* name : {"bos", "eos", "unknown", "padding", "eot"}) {
    Keys keys = byte_level_keys("gpt-2");
    keys.ids[name] = 4'000'000'000;
    EXPECT_EQ(from_keys(keys.file())->vocab_size(), 261) << name;
    Keys pieces = sentencepiece_keys();
    pieces.ids[name] = static_cast<std::uint32_t>(pieces.tokens.size());
    EXPECT_EQ(from_keys(pieces.file())->encode("c").back(), 262) << name;
  }
}

TEST(GgufTokenizer, HostileListsAreRefused) {
  const auto changed = [](auto change, Keys keys = byte_level_keys("gpt-2")) {
    change(keys);
    return keys.file();
  };
  const auto piece = [&](auto change) { return changed(change, sentencepiece_keys()); };
  expect_refused(changed([](Keys& k) { k.types.pop_back(); }), "token_type has 261 values for 262");
  expect_refused(changed([](Keys& k) { k.types[5] = 0; }), "token 5 is 0, not one of 1 to 6");
  expect_refused(changed([](Keys& k) { k.types[5] = 7; }), "token 5 is 7");
  expect_refused(changed([](Keys& k) { k.tokens[5] = k.tokens[4]; }),
                 "token 5, \"%\", appears twice");
  expect_refused(changed([](Keys& k) { k.tokens[5] = "\xFF"; }), "token 5 is not UTF-8");
  expect_refused(changed([](Keys& k) {
                   k.tokens.clear();
                   k.types.clear();
                 }),
                 "tokenizer.ggml.tokens");
  expect_refused(changed([](Keys& k) { k.merges.push_back("q zz"); }), "zz");
  for (const char* merge : {"zz", " z", "z ", "", "\xFF z"})
    expect_refused(changed([&](Keys& k) { k.merges.push_back(merge); }), "merge 2");
  expect_refused(changed([](Keys& k) {
                   k.ids.erase("bos");
                   k.flags["add_bos_token"] = true;
                 }),
                 "add_bos_token");
  expect_refused(piece([](Keys& k) { k.scores.pop_back(); }), "scores has 265 values for 266");
  expect_refused(piece([](Keys& k) { k.scores.clear(); }), "scores");
  expect_refused(piece([](Keys& k) { k.scores[3] = NAN; }), "token 3 is nan");
  expect_refused(piece([](Keys& k) { k.tokens[7] = "<0x100>", k.types[7] = 1; }),
                 "255 of the 256 byte tokens");
  expect_refused(piece([](Keys& k) { k.tokens[7] = "<0x0Z>"; }), kWhere);
  expect_refused(piece([](Keys& k) {
                   k.ids.erase("unknown");
                   k.types[0] = 1;
                 }),
                 "unknown");
  expect_refused(piece([](Keys& k) { k.tokens.back() = std::string("a\0b", 3); }), "NUL");
  expect_refused(GgufFile().text("tokenizer.ggml.model", "gpt2").i32("tokenizer.ggml.tokens", 1),
                 "tokenizer.ggml.tokens");
  expect_refused(GgufFile().i32("tokenizer.ggml.model", 1), "tokenizer.ggml.model");
  expect_refused(
      GgufFile().text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", {"a"}),
      "tokenizer.ggml.merges");
}

TEST(GgufTokenizer, ABlankMayBeginAMerge) {
  // Merges of tokens outside the alphabet of bytes, as some files have them: " " with "a".
  Keys keys = byte_level_keys("gpt-2");
  keys.add(" ");
  keys.add(" z");
  keys.merges.push_back("  z");
  EXPECT_NO_THROW(from_keys(keys.file()));
}

TEST(GgufTokenizer, EveryNameOfTheTableIsThereOnce) {
  std::set<std::string> names;
  for (const GgufPreTokenizer& each : gguf_pre_tokenizers())
    for (const std::string& name : each.names) EXPECT_TRUE(names.insert(name).second) << name;
  EXPECT_GE(names.size(), 21U);
}

}  // namespace
}  // namespace focus
