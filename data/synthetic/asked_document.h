#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace focus {

/// Bytes [begin, end) of a document that say again what begins at byte `source`.
struct Answer {
  std::size_t begin = 0, end = 0, source = 0;
  bool operator==(const Answer&) const = default;
};

/// A document with answers that only its earlier text can give.
struct AskedDocument {
  std::string text;
  std::vector<Answer> answers;  // from left to right; empty: nothing is asked
  bool operator==(const AskedDocument&) const = default;
};

/// A line of JSON for each document that asks something:
/// {"text": "...", "answers": [{"begin": 120, "end": 121, "source": 4}]}
std::string questions_jsonl(std::span<const AskedDocument> documents);

/// The same read back. Throws std::runtime_error, one line that begins with `where` and says which
/// document: no JSON, a field that is absent, an answer that is empty, outside the text or not
/// after its source; or no document at all.
std::vector<AskedDocument> read_questions(std::string_view jsonl, const std::string& where);

}  // namespace focus
