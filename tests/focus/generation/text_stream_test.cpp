#include "focus/generation/text_stream.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "data/files/utf8.h"

namespace focus {
namespace {

const std::string kGolden = FOCUS_SOURCE_DIR "/tests/golden/tokenizers/";

std::vector<std::string> streamed(const Tokenizer& tokenizer, const std::string& prompt,
                                  const std::vector<std::int32_t>& ids) {
  TextStream stream(tokenizer, tokenizer.encode(prompt));
  std::vector<std::string> parts;
  for (const std::int32_t id : ids) parts.push_back(stream.add(id));
  parts.push_back(stream.finish());
  return parts;
}
std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

TEST(TextStream, HoldsACharacterBackUntilItIsWhole) {
  const auto bytes = load_tokenizer("bytes");
  EXPECT_EQ(streamed(*bytes, "x", {'a', 0xE2, 0x82, 0xAC, 'b'}),
            (std::vector<std::string>{"a", "", "", "\xE2\x82\xAC", "b", ""}));
}

TEST(TextStream, IllFormedBytesBecomeReplacements) {
  const auto bytes = load_tokenizer("bytes");
  EXPECT_EQ(joined(streamed(*bytes, "x", {0xFF, 'a', 0xE2, 'b', 0xE2, 0x82})),
            "\xEF\xBF\xBD"
            "a"
            "\xEF\xBF\xBD"
            "b"
            "\xEF\xBF\xBD");
}

TEST(TextStream, PutTogetherItIsTheTextAfterThePrompt) {
  const std::string prompt = "Once upon a time";
  const std::string text = " there was a caf\u00E9, \u4F60\u597D \U0001F600 and\n\nnothing else.";
  for (const char* kind : {"gpt2_style", "llama2_style", "llama3_style", "sentencepiece_bpe"}) {
    const auto tokenizer = load_tokenizer(kGolden + kind);
    const auto before = tokenizer->encode(prompt), all = tokenizer->encode(prompt + text);
    // Only where the text's tokens are the prompt's and more is there something to compare.
    ASSERT_TRUE(std::equal(before.begin(), before.end(), all.begin())) << kind;
    const std::vector<std::int32_t> ids(all.begin() + static_cast<std::ptrdiff_t>(before.size()),
                                        all.end());
    const auto parts = streamed(*tokenizer, prompt, ids);
    EXPECT_EQ(tokenizer->decode(before) + joined(parts), tokenizer->decode(all)) << kind;
    for (const std::string& part : parts) EXPECT_TRUE(is_valid_utf8(part)) << kind;
    EXPECT_TRUE(parts.back().empty()) << kind;
  }
}

RC_GTEST_PROP(TextStream, AnyBytesGiveTheTextOfAllOfThem, ()) {
  const auto bytes = load_tokenizer("bytes");
  const auto data = *rc::gen::arbitrary<std::vector<std::uint8_t>>();
  const std::string all(data.begin(), data.end());
  const auto parts = streamed(*bytes, "x", {data.begin(), data.end()});
  for (const std::string& part : parts) RC_ASSERT(is_valid_utf8(part));
  RC_ASSERT(joined(parts) == replace_invalid_utf8(all));
}

TEST(TextStream, SpecialAndUnknownIdsHaveNoText) {
  const auto tokenizer = load_tokenizer(kGolden + "gpt2_style");
  const auto end = tokenizer->encode("<|endoftext|>");
  ASSERT_EQ(end.size(), 1u);
  EXPECT_TRUE(tokenizer->is_special(end[0]));
  auto ids = tokenizer->encode(" one");
  EXPECT_FALSE(tokenizer->is_special(ids[0]));
  ids.insert(ids.begin() + 1, {end[0], tokenizer->vocab_size(), tokenizer->vocab_size() + 7});
  EXPECT_EQ(joined(streamed(*tokenizer, "x", ids)), " one");
}

TEST(TextStream, ControlPiecesOfSentencePieceAreSpecial) {
  const auto tokenizer = load_tokenizer(kGolden + "sentencepiece_bpe");
  EXPECT_TRUE(tokenizer->is_special(tokenizer->bos_id().value()));
  EXPECT_TRUE(tokenizer->is_special(tokenizer->eos_id().value()));
  EXPECT_FALSE(tokenizer->is_special(tokenizer->encode("a").back()));
}

}  // namespace
}  // namespace focus
