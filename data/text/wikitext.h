#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Texts as language models have been compared on them: by word and by byte, whatever the tokenizer.
namespace focus {

/// Words between white space: PG-19's count.
std::int64_t count_words(std::string_view text);

/// WikiText's count: white space separates tokens, and each line's end is one more. 245,569
/// of WikiText-2's test text.
std::int64_t count_wikitext_words(std::string_view text);

/// WikiText with its tokens put together as they are written ("4 @,@ 000" is "4,000"), article by
/// article: the lm-evaluation-harness's rules.
std::string wikitext_detokenized(std::string_view text);

}  // namespace focus
