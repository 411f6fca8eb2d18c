#include "focus/train/attention_row.h"

#include "autograd/check.h"

namespace focus {

std::string AttentionRow::routing_text() const {
  if (causal) return has_groups() ? routing : "-";
  return has_groups() ? routing + " (not causal)" : "not causal";
}

AttentionRow read_attention_row(const nlohmann::ordered_json& row, const std::string& where) {
  const auto text = [&](const char* key) {
    return row.contains(key) && row[key].is_string() ? row[key].get<std::string>() : "";
  };
  AttentionRow read{.name = row.at("attention"),
                    .kind = text("kind"),
                    .keeps_affinity = text("gate") == "keep",
                    .routing = text("routing"),
                    .causal = row.at("causal")};
  if (read.kind.empty())
    fail(
        "{}: made by an older version, which did not say what kind each attention is: run focus "
        "eval again",
        where);
  if (read.kind == "hard") read.top_k = row.at("top_k");
  return read;
}

}  // namespace focus
