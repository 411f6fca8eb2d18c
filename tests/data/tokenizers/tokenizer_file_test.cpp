// What a tokenizer.json may say, and what is refused.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "data/tokenizers/byte_level_bpe.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Ids = std::vector<std::int32_t>;

/// Every printable ASCII character is a token, its code the id; then "ab" (200) and "abc" (201).
json plain_file() {
  json vocabulary = json::object();
  for (int c = 0x20; c < 0x7F; ++c) vocabulary[std::string(1, static_cast<char>(c))] = c;
  vocabulary["\u2581"] = 130;
  vocabulary["\u0120"] = 131;
  vocabulary["ab"] = 200;
  vocabulary["abc"] = 201;
  json file = json::parse(R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [], "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "merges": [["a", "b"], "ab c"]}})");
  file["model"]["vocab"] = std::move(vocabulary);
  return file;
}

json added(std::int32_t id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

/// A pre-tokenizer; `kind` is String or Regex.
json split_at(const char* kind, const char* pattern, const char* behavior = "Isolated",
              bool invert = false) {
  return {{"type", "Split"},
          {"pattern", {{kind, pattern}}},
          {"behavior", behavior},
          {"invert", invert}};
}

std::unique_ptr<Tokenizer> make(const json& file) {
  return make_tokenizer("tokenizer.json", {{"tokenizer.json", file.dump()}}, "file");
}

std::unique_ptr<Tokenizer> sentencepiece(const std::string& model) {
  return make_tokenizer("sentencepiece", {{"tokenizer.model", model}}, "store");
}

/// The tokens of a text with a bar between them: token boundaries one can read.
std::string split(const json& file, const std::string& text) {
  const auto tokenizer = make(file);
  std::string joined;
  for (const std::int32_t id : tokenizer->encode(text)) {
    if (!joined.empty()) joined += '|';
    joined += tokenizer->decode(Ids{id});
  }
  return joined;
}

TEST(TokenizerFile, MergesInBothSpellings) {
  EXPECT_THAT(make(plain_file())->encode("abcab a"), ElementsAre(201, 200, 32, 97));
  EXPECT_EQ(make(plain_file())->vocab_size(), 202);
}

TEST(TokenizerFile, AddedTokensAreFoundLongestFirst) {
  json file = plain_file();
  file["added_tokens"] = json::array({added(300, "<x>"), added(301, "<x><y>"), added(97, "a")});
  EXPECT_THAT(make(file)->encode("b<x><y>c<x>d"), ElementsAre(98, 301, 99, 300, 100));
  EXPECT_THAT(make(file)->encode("abab"), ElementsAre(97, 98, 97, 98));  // "a" comes first
  EXPECT_EQ(make(file)->vocab_size(), 302);
  EXPECT_EQ(make(file)->decode(Ids{301, 98}), "<x><y>b");
}

TEST(TokenizerFile, AddedTokensTakeBlanksAndStandAlone) {
  json file = plain_file();
  json& token = file["added_tokens"][0] = added(300, "<x>");
  EXPECT_EQ(split(file, "a  <x>  b"), "a| | |<x>| | |b");
  token["lstrip"] = true;
  EXPECT_EQ(split(file, "a  <x>  b"), "a|<x>| | |b");
  token["rstrip"] = true;
  EXPECT_EQ(split(file, "a  <x>  <x> b"), "a|<x>|<x>|b");
  token = added(300, "and");
  token["single_word"] = true;
  EXPECT_EQ(split(file, "and band,and"), "and| |b|a|n|d|,|and");
}

TEST(TokenizerFile, NormalizedAddedTokensAreFoundInNormalizedText) {
  json file = plain_file();
  file["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", "_"}}}, {"content", "-"}};
  json& token = file["added_tokens"][0] = added(300, "x_y");
  EXPECT_EQ(split(file, "x-y x_y"), "x|-|y| |x_y");
  token["normalized"] = true;
  EXPECT_EQ(split(file, "x-y x_y"), "x-y| |x-y");
}

TEST(TokenizerFile, Normalizers) {
  json file = plain_file();
  file["normalizer"] = R"({"type": "Sequence", "normalizers": [
      {"type": "NFKC"}, {"type": "Prepend", "prepend": ">"},
      {"type": "Replace", "pattern": {"Regex": "[0-9]+"}, "content": "#"}]})"_json;
  EXPECT_EQ(split(file, "\xEF\xAC\x81 2026"), ">|f|i| |#");
  EXPECT_EQ(split(file, ""), "");
}

TEST(TokenizerFile, SplitBehaviors) {
  json file = plain_file();
  // Whether "a" and "b" merge tells where pieces end.
  const auto pieces = [&](const char* behavior, bool invert, const std::string& text) {
    file["pre_tokenizer"] = split_at("String", "b", behavior, invert);
    return split(file, text);
  };
  EXPECT_EQ(pieces("Isolated", false, "abc"), "a|b|c");
  EXPECT_EQ(pieces("Removed", false, "abca"), "a|c|a");
  EXPECT_EQ(pieces("Removed", true, "abcb"), "b|b");
  EXPECT_EQ(pieces("MergedWithPrevious", false, "abca"), "ab|c|a");
  EXPECT_EQ(pieces("MergedWithNext", false, "abca"), "a|b|c|a");
  EXPECT_EQ(pieces("MergedWithNext", true, "abca"), "ab|c|a");
  EXPECT_EQ(pieces("Contiguous", false, "abca"), "a|b|c|a");
}

TEST(TokenizerFile, EmptyMatchesSplitToo) {
  json file = plain_file();
  const auto pieces = [&](const char* pattern, const char* behavior, const std::string& text) {
    file["pre_tokenizer"] = split_at("Regex", pattern, behavior);
    return split(file, text);
  };
  // As Hugging Face's tokenizers: "a" and "b" do not merge across an empty match.
  EXPECT_EQ(pieces("(?=b)", "Isolated", "abcab"), "a|b|c|a|b");
  EXPECT_EQ(pieces("(?<=b)", "Isolated", "abcab"), "ab|c|ab");
  EXPECT_EQ(pieces("(?<=b)", "Removed", "abcab"), "ab|c|ab");
  EXPECT_EQ(pieces("(?<=b)", "MergedWithPrevious", "abcab"), "ab|c|ab");
  EXPECT_EQ(pieces("(?<=b)", "MergedWithNext", "abcab"), "ab|c|ab");
  EXPECT_EQ(pieces("(?<=b)", "Contiguous", "abcab"), "ab|c|ab");
  EXPECT_EQ(pieces("c*", "Removed", "abccab"), "a|b|a|b");
  EXPECT_EQ(pieces("$", "Isolated", "abcab"), "abc|ab");
  EXPECT_EQ(pieces("c*", "Isolated", ""), "");
  file = plain_file();
  file["normalizer"] = R"({"type": "Replace", "pattern": {"Regex": "c*"}, "content": "-"})"_json;
  EXPECT_EQ(split(file, "abcc"), "-|a|-|b|-");
}

TEST(TokenizerFile, PreTokenizersThatRemoveOrIsolate) {
  json file = plain_file();
  file["model"]["vocab"]["12"] = 210;
  file["model"]["merges"].push_back({"1", "2"});
  EXPECT_EQ(split(file, "a12"), "a|12");
  file["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_EQ(split(file, "ab12"), "ab|1|2");
  file["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", false}};
  EXPECT_EQ(split(file, "ab12"), "ab|12");
  file["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  EXPECT_EQ(split(file, "ab \tab"), "ab|ab");
  file["pre_tokenizer"] = {{"type", "Whitespace"}};
  EXPECT_EQ(split(file, "ab, ab"), "ab|,|ab");
  file["pre_tokenizer"] = {{"type", "Punctuation"}, {"behavior", "Removed"}};
  EXPECT_EQ(split(file, "a,b$ab"), "a|b|ab");
}

TEST(TokenizerFile, Metaspace) {
  json file = plain_file();
  file["model"]["vocab"]["\u2581a"] = 220;
  file["model"]["merges"].push_back({"\u2581", "a"});
  file["added_tokens"] = json::array({added(300, "<x>")});
  json metaspace = {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}};
  const auto ids = [&](const std::string& text) {
    file["pre_tokenizer"] = file["decoder"] = metaspace;
    return make(file)->encode(text);
  };
  EXPECT_THAT(ids("x a<x>a"), ElementsAre(130, 120, 220, 300, 220));
  EXPECT_EQ(make(file)->decode(ids("x a")), "x a");
  metaspace["prepend_scheme"] = "first";
  EXPECT_THAT(ids("x a<x>a"), ElementsAre(130, 120, 220, 300, 97));
  metaspace["prepend_scheme"] = "never";
  EXPECT_THAT(ids("x a<x>a"), ElementsAre(120, 220, 300, 97));
  EXPECT_EQ(make(file)->decode(ids(" a")), " a");
  metaspace.erase("prepend_scheme");  // files of older versions
  EXPECT_THAT(ids("x a<x>a"), ElementsAre(130, 120, 220, 300, 220));
  metaspace["add_prefix_space"] = true;
  EXPECT_THAT(ids("x a<x>a"), ElementsAre(130, 120, 220, 300, 220));
  metaspace["add_prefix_space"] = false;
  EXPECT_THAT(ids("x a<x>a"), ElementsAre(120, 220, 300, 97));
}

TEST(TokenizerFile, MetaspaceFirstMeansTheInputsStart) {
  // What stood before the first piece that is left was removed: that piece is not the first.
  json file = plain_file();
  file["pre_tokenizer"] = R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
      {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first"}]})"_json;
  EXPECT_THAT(make(file)->encode("x a"), ElementsAre(130, 120, 97));
  EXPECT_THAT(make(file)->encode(" x a"), ElementsAre(120, 97));
}

TEST(TokenizerFile, WhitespaceKeepsJoinersInWords) {
  json file = plain_file();
  file["model"]["vocab"]["\u200d"] = 230;
  file["pre_tokenizer"] = {{"type", "Whitespace"}};
  EXPECT_EQ(split(file, "ab\u200d,"), "ab|\u200d|,");
  file["model"]["merges"].push_back({"\u200d", ","});
  file["model"]["vocab"]["\u200d,"] = 231;
  EXPECT_EQ(split(file, "\u200d,"), "\u200d|,");
}

TEST(TokenizerFile, ByteLevelPrefixSpace) {
  json file = plain_file();
  file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  file["decoder"] = {{"type", "ByteLevel"}};
  EXPECT_THAT(make(file)->encode("a b"), ElementsAre(131, 97, 131, 98));
  EXPECT_THAT(make(file)->encode(" a"), ElementsAre(131, 97));
  EXPECT_EQ(make(file)->decode(Ids{131, 97}), " a");
}

TEST(TokenizerFile, RegularExpressionsMeanUnicode) {
  // U+00A0 is white space and U+180E is not; a combining mark is part of a word.
  json file = plain_file();
  const auto text_of = [&](const char* expression, const std::string& text) {
    file["normalizer"] = {
        {"type", "Replace"}, {"pattern", {{"Regex", expression}}}, {"content", "#"}};
    return split(file, text);
  };
  EXPECT_EQ(text_of("\\s", "a\u00a0b"), "a|#|b");
  EXPECT_EQ(text_of("\\S", "\u180e"), "#");
  EXPECT_EQ(text_of("[^\\s]", "\u180e"), "#");
  EXPECT_EQ(text_of("\\w+", "e\u0301t\u00e9"), "#");
  EXPECT_EQ(text_of("(?i:AB)+", "aBAb"), "#");
  EXPECT_EQ(text_of("a(?!b)", "aab"), "#|ab");
}

TEST(TokenizerFile, Decoders) {
  json file = plain_file();
  file["model"]["byte_fallback"] = true;
  file["model"]["vocab"]["<0xC3>"] = 210;
  file["model"]["vocab"]["<0xA9>"] = 211;
  file["decoder"] = R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
      {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})"_json;
  const auto tokenizer = make(file);
  EXPECT_THAT(tokenizer->encode("a\u00e9"), ElementsAre(97, 210, 211));
  EXPECT_EQ(tokenizer->decode(Ids{130, 130, 97, 210, 211, 130}), " a\u00e9 ");
  EXPECT_EQ(tokenizer->decode(Ids{97, 211, 98}), "a\uFFFDb");
  file["decoder"] = nullptr;
  EXPECT_EQ(make(file)->decode(Ids{97, 98}), "a b");
}

TEST(TokenizerFile, TemplateAndEnds) {
  json file = plain_file();
  file["added_tokens"] = json::array({added(300, "<s>"), added(301, "</s>"), added(302, "<bos>")});
  EXPECT_EQ(make(file)->bos_id(), 300);  // by its usual name
  EXPECT_EQ(make(file)->eos_id(), 301);
  file["post_processor"] = json::parse(R"({"type": "Sequence", "processors": [
    {"type": "ByteLevel"},
    {"type": "TemplateProcessing",
     "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "</s>", "type_id": 0}}],
     "special_tokens": {"<bos>": {"id": "<bos>", "ids": [302], "tokens": ["<bos>"]},
                        "</s>": {"id": "</s>", "ids": [301], "tokens": ["</s>"]}}}]})");
  EXPECT_THAT(make(file)->encode_with_special("a"), ElementsAre(302, 97, 301));
  EXPECT_THAT(make(file)->encode("a"), ElementsAre(97));
  EXPECT_EQ(make(file)->bos_id(), 302);

  const auto configured = make_tokenizer(
      "tokenizer.json",
      {{"tokenizer.json", file.dump()},
       {"tokenizer_config.json", R"({"bos_token": null, "eos_token": {"content": "<s>"}})"}});
  EXPECT_EQ(configured->bos_id(), std::nullopt);
  EXPECT_EQ(configured->eos_id(), 300);
}

TEST(TokenizerFile, TokensThatOnlyTheClassDefines) {
  json file = plain_file();
  file["model"]["vocab"]["<|endoftext|>"] = 302;
  const auto of_class = [&](const std::string& config) {
    return make_tokenizer("tokenizer.json",
                          {{"tokenizer.json", file.dump()}, {"tokenizer_config.json", config}});
  };
  const auto gpt2 = of_class(R"({"tokenizer_class": "GPT2Tokenizer"})");
  EXPECT_EQ(gpt2->bos_id(), 302);
  EXPECT_THAT(gpt2->encode("a<|endoftext|>"), ElementsAre(97, 302));
  EXPECT_TRUE(gpt2->is_special(302));
  const auto qwen = of_class(R"({"tokenizer_class": "Qwen2TokenizerFast"})");
  EXPECT_EQ(qwen->eos_id(), 302);
  EXPECT_EQ(qwen->bos_id(), std::nullopt);
}

struct Broken {
  const char* place;  // JSON pointer of what is replaced
  json value;
  const char* says;  // part of the message
};

TEST(TokenizerFile, RefusesWhatItDoesNotKnowOrCannotBe) {
  const std::vector<Broken> cases = {
      {"/model/type", "WordPiece", "\"WordPiece\""},
      {"/model/dropout", 0.1, "dropout"},
      {"/model/end_of_word_suffix", "</w>", "end_of_word_suffix"},
      {"/model/continuing_subword_prefix", "##", "continuing_subword_prefix"},
      {"/model/unk_token", "[UNK]", "\"[UNK]\""},
      {"/model/vocab", json::array(), "model.vocab: expected an object"},
      {"/model/vocab/a", 98, "id 98 belongs to two tokens, \"a\" and \"b\""},
      {"/model/vocab/a", -1, "the id of \"a\" is -1"},
      {"/model/vocab/a", 2000000000, "the id of \"a\" is 2000000000"},
      {"/model/vocab/a", 1.5, "the id of \"a\" is 1.5"},
      {"/model/vocab/a", "97", "the id of \"a\""},
      {"/model/merges", json::array({json::array({"a", "z"})}), "the token \"az\""},
      {"/model/merges", {{"a", "b", "c"}}, "model.merges[0]: expected two tokens"},
      {"/model/merges", {"a b c"}, "model.merges[0]"},
      {"/model/merges", {"ab"}, "model.merges[0]"},
      {"/model/merges", {7}, "model.merges[0]: expected a string, found number"},
      {"/model/merges", json::array({json::array({"", "a"})}), "merge 0 has an empty part"},
      {"/model/ignore_merges", "yes", "model.ignore_merges: expected true or false"},
      {"/model", nullptr, "model: expected an object"},
      {"/added_tokens", json::array({added(300, "")}), "added_tokens[0].content: a token is empty"},
      {"/added_tokens", json::array({added(300, "x")}), "120 in the model's vocabulary"},
      {"/added_tokens", json::array({added(97, "<x>")}),
       "id 97 of \"<x>\" already belongs to \"a\""},
      {"/added_tokens", {added(300, "<x>"), added(301, "<x>")}, "appears twice"},
      {"/added_tokens", json::array({added(1 << 30, "<x>")}), "added_tokens[0].id: 1073741824"},
      {"/normalizer", {{"type", "Lowercase"}}, "normalizer: the type \"Lowercase\""},
      {"/normalizer", {{"kind", "NFC"}}, "\"type\" is missing"},
      {"/pre_tokenizer", {{"type", "BertPreTokenizer"}}, "\"BertPreTokenizer\""},
      {"/pre_tokenizer", split_at("Regex", "(a"), "'(a' is invalid at byte 2"},
      {"/pre_tokenizer", split_at("Regex", "\\h"), "uses \\h"},
      {"/pre_tokenizer", split_at("Regex", "\\C"), "uses \\C"},  // half a character
      {"/pre_tokenizer", split_at("Regex", "(*ACCEPT)"), "uses (*"},
      {"/pre_tokenizer", split_at("String", ""), "empty pattern"},
      {"/pre_tokenizer", split_at("String", "a", "Doubled"), "\"Doubled\""},
      {"/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", ""}}, "one character"},
      {"/pre_tokenizer",
       R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "first",
           "add_prefix_space": false})"_json,
       "add_prefix_space is false"},
      {"/decoder", {{"type", "CTC"}}, "decoder: the type \"CTC\""},
      {"/post_processor", {{"type", "BertProcessing"}}, "\"BertProcessing\""},
      {"/post_processor",
       {{"type", "TemplateProcessing"}, {"single", json::array()}, {"special_tokens", {}}},
       "no place for the text"},
      {"/post_processor",
       R"({"type": "TemplateProcessing",
           "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
           "special_tokens": {"<s>": {"ids": [4000000]}}})"_json,
       "the template adds id 4000000"},
      {"/normalizer", {{"type", "Prepend"}, {"prepend", std::string(1000, 'a')}}, "1000 bytes"},
      {"/normalizer", {{"type", "a\nb"}}, "\"a\\nb\""},
  };
  for (const Broken& broken : cases) {
    json file = plain_file();
    file[json::json_pointer(broken.place)] = broken.value;
    EXPECT_THAT(error_of([&] { make(file); }),
                AllOf(HasSubstr("file"), HasSubstr(broken.says), Not(HasSubstr("\n"))))
        << broken.place << " = " << broken.value.dump();
  }
}

TEST(TokenizerFile, StepsMayNotMultiplyAText) {
  json step = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aaaaaaaaaaaaaaaa"}};
  json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  json normalizer = plain_file(), pre_tokenizer = plain_file(), decoder = plain_file();
  normalizer["normalizer"] = {{"type", "Sequence"}, {"normalizers", json(9, step)}};
  pre_tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json(40, byte_level)}};
  decoder["decoder"] = {{"type", "Sequence"}, {"decoders", json(9, step)}};
  EXPECT_THAT(error_of([&] { make(normalizer)->encode("aaaa"); }), HasSubstr("do not trust"));
  EXPECT_THAT(error_of([&] { make(pre_tokenizer)->encode("a\xC3\xA9"); }),
              HasSubstr("do not trust"));
  EXPECT_THAT(error_of([&] { make(decoder)->decode(Ids{'a', 'a'}); }), HasSubstr("do not trust"));
}

TEST(TokenizerFile, StepsMayNotMultiplyThePieces) {
  // No piece is long here, but every character becomes two, and each of those again.
  const json prefix = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", false}};
  const json each = split_at("Regex", ".");
  json steps = json::array();
  for (int i = 0; i < 20; ++i) {
    steps.push_back(prefix);
    steps.push_back(each);
  }
  json file = plain_file();
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  EXPECT_THAT(error_of([&] { make(file)->encode("a"); }), HasSubstr("do not trust"));
  file["pre_tokenizer"]["pretokenizers"] = json(65, each);
  EXPECT_THAT(error_of([&] { make(file); }), HasSubstr("more than the 64 steps"));
}

TEST(TokenizerFile, ALargeIdStandsAlone) {
  json file = plain_file();
  file["added_tokens"] = json::array({added(4'000'000, "<x>")});
  const auto tokenizer = make(file);
  EXPECT_EQ(tokenizer->vocab_size(), 4'000'001);
  EXPECT_EQ(tokenizer->decode(Ids{4'000'000, 300, 'a'}), "<x>a");
}

TEST(TokenizerFile, RefusesWrongJson) {
  const auto error = [](const std::string& text) {
    return error_of([&] {
      make_tokenizer("tokenizer.json", {{"tokenizer.json", text}}, "some.json");
    });
  };
  const std::string whole = plain_file().dump();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, whole.size() / 2}) {
    EXPECT_THAT(error(whole.substr(0, size)), HasSubstr("some.json: not valid JSON")) << size;
  }
  EXPECT_THAT(error(R"({"model": 1, "model": 2})"), HasSubstr("\"model\" appears twice"));
  EXPECT_THAT(error(R"({"model": {"vocab": {"a": 1, "a": 2}}})"), HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(error("{\"a\\nb\": 1, \"a\\nb\": 2}"), HasSubstr("\"a\\nb\" appears twice"));
  EXPECT_THAT(error("[1e999]"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error(std::string(100000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(error("[]"), HasSubstr("some.json: expected an object, found array"));
  EXPECT_THAT(error("{\"\xFF\": 1}"), HasSubstr("not valid JSON"));
}

TEST(TokenizerFile, RefusesBrokenGpt2AndSentencePieceFiles) {
  const std::string vocabulary = R"({"a": 0, "b": 1})";
  const auto gpt2 = [&](const std::string& merges) {
    return error_of([&] {
      make_tokenizer("gpt2", {{"encoder.json", vocabulary}, {"vocab.bpe", merges}}, "store");
    });
  };
  EXPECT_EQ(gpt2("#version: 0.2\n"), "");
  EXPECT_THAT(gpt2("#version: 0.2\na b\n"), HasSubstr("needs the token \"ab\""));
  EXPECT_THAT(gpt2("#version: 0.2\nab\n"), HasSubstr("vocab.bpe line 2"));
  EXPECT_THAT(error_of([] { sentencepiece("not a model"); }),
              AllOf(HasSubstr("store: not a SentencePiece model"), Not(HasSubstr("\n"))));
}

/// A model whose rules turn A into a, B into "b b" and an accented E into e.
std::string model_with_rules() {
  return read_text(FOCUS_SOURCE_DIR "/tests/fuzz/seeds/sentencepiece/rules");
}

TEST(TokenizerFile, SentencePieceFollowsTheRulesOfItsModel) {
  // What Google's sentencepiece 0.2 gives.
  EXPECT_THAT(sentencepiece(model_with_rules())->encode("ABBA hello \u00C9"),
              ElementsAre(12, 11, 24, 13, 3, 7, 5, 5, 6, 3, 25));
}

TEST(TokenizerFile, RefusesSentencePieceRulesThatPointOutsideThemselves) {
  const std::string good = model_with_rules();
  // The size of the trie precedes it: one block of 256 units.
  const std::size_t trie = good.find(std::string("\x00\x04\x00\x00", 4)) + 4;
  ASSERT_LT(trie, good.size());
  const auto error_with = [&](std::size_t byte, char value) {
    std::string model = good;
    model[byte] = value;
    return error_of([&] { sentencepiece(model); });
  };
  const auto refused =
      HasSubstr("store: the SentencePiece model's precompiled_charsmap is damaged");
  EXPECT_EQ(error_with(trie, good[trie]), "");
  EXPECT_THAT(error_with(trie + 2, '\x7f'), refused) << "the root's children lie beyond the trie";
  EXPECT_THAT(error_with(trie + 3, '\xea'), refused) << "nor does the root count as a value";
  EXPECT_THAT(error_with(trie - 3, '\x03'), refused) << "a trie of less than a block";
  for (std::size_t unit = trie; unit < trie + 1024; unit += 4) {
    if ((static_cast<unsigned char>(good[unit + 3]) & 0x80) == 0) continue;  // not a value
    EXPECT_THAT(error_with(unit + 1, '\x7f'), refused) << "a replacement beyond them";
  }
}

TEST(TokenizerFile, RefusesASentencePieceWithANul) {
  const std::string model = "\x0a\x05\x0a\x01<\x18\x02\x0a\x05\x0a\x03" + std::string("a\0b", 3);
  EXPECT_THAT(error_of([&] { sentencepiece(model); }),
              HasSubstr("store: not a SentencePiece model: piece 1 has a NUL in it"));
}

}  // namespace
}  // namespace focus
