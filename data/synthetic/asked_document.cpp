#include "data/synthetic/asked_document.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"

namespace focus {
namespace {

AskedDocument read_question(std::string_view line, const std::string& where) {
  const nlohmann::json json = parse_strict_json(line, where);
  const JsonView view(json, where);
  AskedDocument document{.text = view.at("text").string(), .answers = {}};
  const auto limit = static_cast<std::int64_t>(document.text.size()) + 1;
  const JsonView answers = view.at("answers");
  for (std::size_t i = 0; i < answers.array_size(); ++i) {
    const JsonView item = answers.item(i);
    const auto byte = [&](const char* key) {
      return static_cast<std::size_t>(item.at(key).integer(limit));
    };
    const Answer answer{.begin = byte("begin"), .end = byte("end"), .source = byte("source")};
    if (answer.begin >= answer.end || answer.source >= answer.begin)
      fail("{}: bytes {} to {} with their source at {}: expected source < begin < end",
           item.where(), answer.begin, answer.end, answer.source);
    document.answers.push_back(answer);
  }
  if (document.answers.empty()) fail("{}: has no question: answers is empty", where);
  return document;
}

}  // namespace

std::string questions_jsonl(std::span<const AskedDocument> documents) {
  std::string lines;
  for (const AskedDocument& document : documents) {
    if (document.answers.empty()) continue;
    auto answers = nlohmann::ordered_json::array();
    for (const Answer& answer : document.answers)
      answers.push_back({{"begin", answer.begin}, {"end", answer.end}, {"source", answer.source}});
    lines +=
        nlohmann::ordered_json({{"text", document.text}, {"answers", std::move(answers)}}).dump() +
        "\n";
  }
  return lines;
}

std::vector<AskedDocument> read_questions(std::string_view jsonl, const std::string& where) {
  std::vector<AskedDocument> documents;
  for_each_row(jsonl, [&](std::string_view text, std::size_t line) {
    documents.push_back(read_question(text, fmt::format("{}, line {}", where, line)));
  });
  if (documents.empty()) fail("{}: no document has a question", where);
  return documents;
}

}  // namespace focus
