#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/settings/config_values.h"

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

/// What a built-in document asks for.
enum class CorpusKind {
  tales,   // invented people, needed far below
  recall,  // keys with a digit each, "b7 k3 z1"; then each key again, in another order (MQAR)
  copy     // words of letters drawn at random; then the same words again
};
constexpr auto enum_names(CorpusKind) { return enum_list("tales", "recall", "copy"); }

/// Built-in texts whose answers lie far back: between facts and questions are
/// sentences that have nothing to do with it.
struct FarCorpusOptions {
  CorpusKind kind = CorpusKind::tales;
  std::int64_t documents = 1000;
  std::uint64_t seed = 1;
  std::vector<std::int64_t> keys = {8};
  std::vector<std::int64_t> distance = {64};
  double share = 1;

  template <class F>
  void visit(F&& f) {
    f("kind", kind,
      "tales; recall: keys with one digit each, then each key again; copy: random words, then the "
      "same words again");
    f("documents", documents, "documents", {1, 1e9});
    f("seed", seed, "random seed; another seed gives other documents");
    f("keys", keys, "keys of recall, words of copy; from a list each document draws one",
      {1, 4096});
    f("distance", distance,
      "least number of bytes of other sentences between fact and question; from a list each "
      "document draws one",
      {0, 1 << 24});
    f("share", share, "share of documents of this kind; the others are tales", {0, 1});
  }
};

/// The same documents for the same options on every platform; the first n of a longer corpus are
/// the shorter corpus. Tales ask nothing that is marked. Throws std::invalid_argument where an
/// option is out of range.
std::vector<AskedDocument> generate_far_documents(const FarCorpusOptions& options);

/// Texts with the separator between them.
std::string joined_texts(const std::vector<AskedDocument>& documents, std::string_view separator);

/// A line of JSON for each document that asks something:
/// {"text": "...", "answers": [{"begin": 120, "end": 121, "source": 4}]}
std::string questions_jsonl(std::span<const AskedDocument> documents);

/// The same read back. Throws std::runtime_error, one line that begins with `where` and says which
/// document: no JSON, a field that is absent, an answer that is empty, outside the text or not
/// after its source; or no document at all.
std::vector<AskedDocument> read_questions(std::string_view jsonl, const std::string& where);

}  // namespace focus
