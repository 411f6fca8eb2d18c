#include "focus/evaluation/report/evaluation_file.h"

#include "autograd/base/check.h"
#include "data/settings/struct_json.h"

namespace focus {

EvaluationFile evaluation_from_json(const nlohmann::json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("model"))
    fail("{}: not a JSON file of focus eval --json", where);
  auto eval = struct_from_json<EvaluationFile>(json, where);
  if (!eval.texts) return eval;
  const std::optional<std::vector<WindowEvaluation>>& lengths = eval.texts->lengths;
  if (!lengths && !eval.texts->windows) fail("{}: texts without rows", where);
  if (lengths && lengths->empty()) fail("{}: lengths without rows", where);
  for (const WindowEvaluation& one : lengths.value_or(std::vector<WindowEvaluation>()))
    if (one.rows.size() != lengths->front().rows.size())
      fail("{}: lengths with different numbers of rows", where);
  return eval;
}

}  // namespace focus
