#include "focus/evaluation/attention_row.h"

#include "autograd/base/check.h"

namespace focus {
namespace {

std::string routing_text_of(const nlohmann::ordered_json& row) {
  AttentionRow read;
  read.routing = text_of(row, "routing");
  if (!row.contains("causal")) return read.routing.empty() ? "-" : read.routing;
  read.causal = row["causal"];
  return read.routing_text();
}

}  // namespace

std::string text_of(const nlohmann::ordered_json& row, const char* key) {
  return row.contains(key) && row[key].is_string() ? row[key].get<std::string>() : "";
}

std::string AttentionRow::routing_text() const {
  if (causal) return has_groups() ? routing : "-";
  return has_groups() ? routing + " (not causal)" : "not causal";
}

AttentionRow read_attention_row(const nlohmann::ordered_json& row, const std::string& where) {
  AttentionRow read{.name = row.at("attention"),
                    .kind = text_of(row, "kind"),
                    .keeps_affinity = text_of(row, "gate") == "keep",
                    .routing = text_of(row, "routing"),
                    .causal = row.at("causal")};
  if (read.kind.empty())
    fail(
        "{}: made by an older version, which did not say what kind each attention is: run focus "
        "eval again",
        where);
  if (read.kind == "hard") read.top_k = row.at("top_k");
  return read;
}

bool same_attention(const nlohmann::ordered_json& row, const nlohmann::ordered_json& other) {
  return row.at("attention") == other.at("attention") &&
         routing_text_of(row) == routing_text_of(other);
}

}  // namespace focus
