#include "focus/evaluation/scores/score_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/file_kind.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/settings/config.h"

namespace focus {
namespace {

using Type = ScoreRequest::Type;

/// The keys of each type, beside "type" and "id".
const std::array<std::vector<std::string>, 3> kKeys = {
    {{"context", "continuation"}, {"text"}, {"context", "until", "max_gen_toks"}}};

Type read_type(const JsonView& request) {
  constexpr auto names = enum_names(Type{});
  const JsonView view = request.get("type");
  if (view.is_null())
    fail("{}: \"type\" is missing; expected {}", request.where(), choices_text(names));
  const auto found = std::ranges::find(names, view.string());
  if (found == names.end())
    fail("{}: {}; expected {}", view.where(), shown_json(view.json()), choices_text(names));
  return static_cast<Type>(found - names.begin());
}

std::vector<std::string> read_until(const JsonView& view) {
  if (view.is_null()) return {};
  if (view.json().is_string()) return {view.string()};
  std::vector<std::string> until;
  for (std::size_t i = 0; i < view.array_size(); ++i) until.push_back(view.item(i).string());
  return until;
}

ScoreRequest read_request(std::string_view line, const std::string& where) {
  const nlohmann::json json = parse_strict_json(line, where);
  const JsonView view(json, where);
  ScoreRequest request{.type = read_type(view), .where = where};
  const std::vector<std::string>& keys = kKeys.at(static_cast<std::size_t>(request.type));
  for (const auto& [key, value] : view.object().items())
    if (key != "type" && key != "id" && std::ranges::find(keys, key) == keys.end())
      fail("{}: {} is not a field of {}, which has {}", where, json_quoted(key),
           value_text(request.type), fmt::join(keys, ", "));
  if (const auto id = json.find("id"); id != json.end()) request.id = id->dump();
  const bool rolling = request.type == Type::loglikelihood_rolling;
  request.context = view.at(rolling ? "text" : "context").string();
  if (request.type == Type::loglikelihood) {
    request.continuation = view.at("continuation").string();
    if (request.continuation.empty()) fail("{}: the continuation is empty", where);
  } else if (request.type == Type::generate_until) {
    request.until = read_until(view.get("until"));
    if (const JsonView most = view.get("max_gen_toks"); !most.is_null())
      request.max_gen_toks = most.integer(1 << 24);
    if (request.max_gen_toks < 1) fail("{}: max_gen_toks is 0", where);
  }
  return request;
}

}  // namespace

std::vector<ScoreRequest> read_requests(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  require_text(text, path);
  std::vector<ScoreRequest> requests;
  for_each_row(text, [&](std::string_view line, std::size_t number) {
    requests.push_back(read_request(line, fmt::format("{}:{}", path.string(), number)));
  });
  if (requests.empty()) fail("{}: no requests in it", path.string());
  return requests;
}

}  // namespace focus
