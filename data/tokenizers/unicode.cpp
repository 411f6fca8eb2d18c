#include "data/tokenizers/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "autograd/base/check.h"

namespace focus {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
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
  if (is_ascii(text)) return text;  // every form leaves ASCII as it is
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

}  // namespace focus
