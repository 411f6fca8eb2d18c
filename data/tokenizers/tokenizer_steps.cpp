#include "data/tokenizers/tokenizer_steps.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

#include "autograd/base/check.h"
#include "data/files/utf8.h"
#include "data/tokenizers/byte_level_bpe.h"

namespace focus {
namespace {

[[noreturn]] void refuse(const JsonView& json, const std::string& type) {
  fail("{}: the type {} is not supported", json.where(), json_quoted(type));
}

/// {"String": ...} or {"Regex": ...}, as Split and Replace have it.
Pattern read_pattern(const JsonView& json) {
  if (json.object().contains("String"))
    return Pattern::literal(json.at("String").string(), json.where());
  return Pattern::regex(json.at("Regex").string(), json.where());
}

/// What a step puts into a text. Short, so that no single step can lengthen a text beyond reason.
std::string read_inserted(const JsonView& json) {
  constexpr std::size_t kMaxInserted = 64;  // bytes
  const std::string& text = json.string();
  if (text.size() > kMaxInserted)
    fail("{}: {} bytes, more than the {} that are supported", json.where(), text.size(),
         kMaxInserted);
  return text;
}

/// The items of a step that is a sequence, or the step itself; none where it is null.
template <class Step, class Read>
std::vector<Step> read_steps(const JsonView& json, const std::string& items, Read read) {
  constexpr std::size_t kMaxSteps = 64;  // each is called by the one before, on the stack
  if (json.is_null()) return {};
  const std::string& type = json.at("type").string();
  if (type != "Sequence") return {read(json, type)};
  std::vector<Step> steps;
  const JsonView list = json.at(items);
  for (std::size_t i = 0; i < list.array_size(); ++i) {
    for (Step& step : read_steps<Step>(list.item(i), items, read)) steps.push_back(std::move(step));
    if (steps.size() > kMaxSteps)
      fail("{}: more than the {} steps that are supported", list.where(), kMaxSteps);
  }
  return steps;
}

Normalizer read_normalizer(const JsonView& json, const std::string& type) {
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD")
    return [type](std::string& text) { text = normalize_unicode(std::move(text), type); };
  if (type == "Prepend") {
    return [prefix = read_inserted(json.at("prepend"))](std::string& text) {
      if (!text.empty()) text = prefix + text;
    };
  }
  if (type == "Replace") {
    return [pattern = read_pattern(json.at("pattern")),
            content = read_inserted(json.at("content"))](std::string& text) {
      text = pattern.replace_all(text, content);
    };
  }
  refuse(json, type);
}

/// A piece and whether it matched.
struct Part {
  std::string_view text;
  bool is_match = false;
};

std::string_view joined(std::string_view left, std::string_view right) {
  return {left.data(), left.size() + right.size()};
}

/// Joins neighbouring parts as the behaviours do that keep the matches with their surroundings.
std::vector<std::string_view> merge_parts(std::vector<Part> parts, const std::string& behavior) {
  std::vector<std::string_view> pieces;
  bool previous_match = false;
  const bool from_the_end = behavior == "MergedWithNext";
  if (from_the_end) std::ranges::reverse(parts);
  for (const Part& part : parts) {
    const bool merge = behavior == "Contiguous" ? part.is_match == previous_match
                                                : part.is_match && !previous_match;
    if (merge && !pieces.empty())
      pieces.back() =
          from_the_end ? joined(part.text, pieces.back()) : joined(pieces.back(), part.text);
    else
      pieces.push_back(part.text);
    previous_match = part.is_match;
  }
  if (from_the_end) std::ranges::reverse(pieces);
  return pieces;
}

PreTokenizer split_step(const Pattern& pattern, const std::string& behavior, bool invert,
                        const std::string& where) {
  if (behavior == "Isolated" || behavior == "Removed") {
    const bool removed = behavior == "Removed";
    return
        [pattern, removed, invert](std::string_view piece, bool at_start, const PieceSink& sink) {
          pattern.for_each_part(piece, [&](std::string_view part, bool is_match) {
            if (!part.empty() && (!removed || is_match == invert))
              sink(part, at_start && part.data() == piece.data());
          });
        };
  }
  if (behavior != "MergedWithPrevious" && behavior != "MergedWithNext" && behavior != "Contiguous")
    fail("{}: the behavior {} is not supported", where, json_quoted(behavior));
  return [pattern, behavior, invert](std::string_view piece, bool at_start, const PieceSink& sink) {
    std::vector<Part> parts;
    pattern.for_each_part(piece, [&](std::string_view part, bool is_match) {
      parts.push_back({part, is_match != invert});
    });
    for (const std::string_view merged : merge_parts(std::move(parts), behavior))
      if (!merged.empty()) sink(merged, at_start && merged.data() == piece.data());
  };
}

struct Metaspace {
  std::string replacement;
  std::string prepend_scheme;
  bool split = true;
};

Metaspace read_metaspace(const JsonView& json) {
  Metaspace result;
  result.replacement = json.at("replacement").string();
  const std::string& mark = result.replacement;
  if (mark.empty() || utf8_char_size(mark[0]) != mark.size())
    fail("{}: replacement must be one character, found {}", json.where(), json_quoted(mark));
  // Files of older versions say add_prefix_space instead.
  const JsonView scheme = json.get("prepend_scheme");
  const std::string old_scheme = json.flag("add_prefix_space", true) ? "always" : "never";
  result.prepend_scheme = scheme.is_null() ? old_scheme : scheme.string();
  if (result.prepend_scheme != "always" && result.prepend_scheme != "first" &&
      result.prepend_scheme != "never")
    fail("{}: the prepend_scheme {} is not supported", json.where(), json_quoted(scheme.string()));
  if (!scheme.is_null() && result.prepend_scheme != "never" && old_scheme == "never")
    fail("{}: add_prefix_space is false, but the prepend_scheme is {}", json.where(),
         json_quoted(scheme.string()));
  result.split = json.flag("split", true);
  return result;
}

PreTokenizer metaspace_step(const JsonView& json) {
  const Metaspace settings = read_metaspace(json);
  const Pattern mark = Pattern::literal(settings.replacement, json.where());
  const PreTokenizer split = split_step(mark, "MergedWithNext", false, json.where());
  return [=](std::string_view piece, bool at_start, const PieceSink& sink) {
    std::string text = replaced(piece, " ", settings.replacement);
    const bool wanted =
        settings.prepend_scheme == "always" || (settings.prepend_scheme == "first" && at_start);
    if (wanted && !text.starts_with(settings.replacement)) text = settings.replacement + text;
    if (settings.split)
      split(text, at_start, sink);
    else
      sink(text, at_start);
  };
}

/// What GPT-2 does: its regular expression, then the alphabet of bytes.
PreTokenizer byte_level_pre_tokenizer(bool add_prefix_space, bool use_regex) {
  auto put = [characters = std::string()](std::string_view bytes, bool at_start,
                                          const PieceSink& sink) mutable {
    characters.clear();
    ByteAlphabet::instance().encode(bytes, characters);
    sink(characters, at_start);
  };
  const Pattern expression = gpt2_pattern();
  return [=](std::string_view piece, bool at_start, const PieceSink& sink) mutable {
    std::string prefixed;
    if (add_prefix_space && !piece.starts_with(' ')) {
      prefixed = fmt::format(" {}", piece);
      piece = prefixed;
    }
    if (!use_regex) return put(piece, at_start, sink);
    expression.for_each_part(piece, [&](std::string_view part, bool) {
      put(part, at_start && part.data() == piece.data(), sink);
    });
  };
}

PreTokenizer read_pre_tokenizer(const JsonView& json, const std::string& type) {
  const std::string& where = json.where();
  const auto regex = [&](const char* expression, const std::string& behavior, bool invert) {
    return split_step(Pattern::regex(expression, where), behavior, invert, where);
  };
  if (type == "ByteLevel")
    return byte_level_pre_tokenizer(json.flag("add_prefix_space", true),
                                    json.flag("use_regex", true));
  if (type == "Split")
    return split_step(read_pattern(json.at("pattern")), json.at("behavior").string(),
                      json.flag("invert"), where);
  if (type == "Digits")
    return regex("\\p{N}", json.flag("individual_digits") ? "Isolated" : "Contiguous", false);
  if (type == "Punctuation") {
    const JsonView behavior = json.get("behavior");
    return regex("[\\p{P}$+<=>^`|~]", behavior.is_null() ? "Isolated" : behavior.string(), false);
  }
  // The reference implementation's \w, unlike that of the expressions in files, has the joiners.
  if (type == "Whitespace")
    return regex("[\\w\\x{200C}\\x{200D}]+|[^\\w\\s\\x{200C}\\x{200D}]+", "Removed", true);
  if (type == "WhitespaceSplit") return regex("\\s", "Removed", false);
  if (type == "Metaspace") return metaspace_step(json);
  refuse(json, type);
}

std::optional<char> fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const char* end = token.data() + 5;
  const auto [stop, error] = std::from_chars(token.data() + 3, end, value, 16);
  if (error != std::errc() || stop != end) return std::nullopt;
  return static_cast<char>(value);
}

void decode_byte_fallback(std::vector<std::string>& tokens) {
  std::vector<std::string> result;
  std::string bytes;
  const auto put_bytes = [&] {
    if (is_valid_utf8(bytes)) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      bytes.push_back(*byte);
    } else {
      put_bytes();
      result.push_back(std::move(token));
    }
  }
  put_bytes();
  tokens = std::move(result);
}

/// All tokens as one.
Decoder fuse_step(const char* between) {
  return [between](std::vector<std::string>& tokens) {
    tokens.assign(1, fmt::format("{}", fmt::join(tokens, between)));
  };
}

Decoder strip_step(const JsonView& json) {
  const std::string& content = json.at("content").string();
  if (content.empty() || utf8_char_size(content[0]) != content.size())
    fail("{}: content must be one character, found {}", json.where(), json_quoted(content));
  const std::int64_t start = json.at("start").integer(1 << 20);
  const std::int64_t stop = json.at("stop").integer(1 << 20);
  return [=](std::vector<std::string>& tokens) {
    for (std::string& token : tokens) {
      for (std::int64_t i = 0; i < start && token.starts_with(content); ++i)
        token.erase(0, content.size());
      for (std::int64_t i = 0; i < stop && token.ends_with(content); ++i)
        token.resize(token.size() - content.size());
    }
  };
}

void decode_byte_level(std::vector<std::string>& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += ByteAlphabet::instance().decode(token);
  tokens.assign(1, replace_invalid_utf8(bytes));
}

Decoder read_decoder(const JsonView& json, const std::string& type) {
  if (type == "ByteLevel") return decode_byte_level;
  if (type == "ByteFallback") return decode_byte_fallback;
  if (type == "Fuse") return fuse_step("");
  if (type == "Strip") return strip_step(json);
  if (type == "Metaspace")
    return [settings = read_metaspace(json)](std::vector<std::string>& tokens) {
      const bool drop_first = settings.prepend_scheme != "never";
      for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = replaced(tokens[i], settings.replacement, i == 0 && drop_first ? "" : " ");
    };
  if (type == "Replace") {
    return [pattern = read_pattern(json.at("pattern")),
            content = read_inserted(json.at("content"))](std::vector<std::string>& tokens) {
      for (std::string& token : tokens) token = pattern.replace_all(token, content);
    };
  }
  refuse(json, type);
}

const icu::Normalizer2* normalizer(std::string_view form, UErrorCode& status) {
  if (form == "NFC") return icu::Normalizer2::getNFCInstance(status);
  if (form == "NFD") return icu::Normalizer2::getNFDInstance(status);
  if (form == "NFKC") return icu::Normalizer2::getNFKCInstance(status);
  check(form == "NFKD", "normalize_unicode: unknown normalization form '{}'", form);
  return icu::Normalizer2::getNFKDInstance(status);
}

}  // namespace

std::string normalize_unicode(std::string text, std::string_view form) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* instance = normalizer(form, status);
  // Every form leaves ASCII as it is.
  if (std::ranges::all_of(text, [](char c) { return (c & 0x80) == 0; })) return text;
  check(text.size() <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()),
        "normalize_unicode: a text of {} bytes is longer than 2 GiB: split it into documents",
        text.size());
  std::string result;
  icu::StringByteSink<std::string> sink(&result, static_cast<std::int32_t>(text.size()));
  if (U_SUCCESS(status)) instance->normalizeUTF8(0, text, sink, nullptr, status);
  if (U_FAILURE(status))
    fail("cannot normalize text to {}: ICU reports {}", form, u_errorName(status));
  return result;
}

std::vector<Normalizer> read_normalizers(const JsonView& json) {
  return read_steps<Normalizer>(json, "normalizers", read_normalizer);
}

std::vector<PreTokenizer> read_pre_tokenizers(const JsonView& json) {
  return read_steps<PreTokenizer>(json, "pretokenizers", read_pre_tokenizer);
}

std::vector<Decoder> read_decoders(const JsonView& json) {
  if (!json.is_null()) return read_steps<Decoder>(json, "decoders", read_decoder);
  return {fuse_step(" ")};
}

Pattern gpt2_pattern() { return Pattern::regex(kGpt2Expression, "the byte-level pre-tokenizer"); }

}  // namespace focus
