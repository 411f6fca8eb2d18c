#pragma once

#include <string>
#include <string_view>

namespace focus {

/// `text` (well-formed UTF-8) in a Unicode normalization form: "NFC", "NFD", "NFKC" or "NFKD".
std::string normalize_unicode(std::string text, std::string_view form);

}  // namespace focus
