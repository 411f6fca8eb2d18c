#include <nlohmann/json.hpp>

#include "focus/evaluation/statistics/groups_report.h"

namespace focus {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Agreement& a) {
  return {{"adjusted_rand_index", a.rand},
          {"normalised_mutual_information", a.information},
          {"kept_share", a.kept}};
}

Json to_json(const LayerAgreement& agreement) {
  Json json = {{"first", agreement.first}, {"second", agreement.second}};
  json["mean"] = to_json(agreement.mean());
  json["layers"] = Json::array();
  for (const Agreement& layer : agreement.layers) json["layers"].push_back(to_json(layer));
  return json;
}

Json to_json(const std::vector<TypicalToken>& tokens, const GroupsReport& report) {
  Json list = Json::array();
  for (const TypicalToken& token : tokens)
    list.push_back({{"id", token.id},
                    {"text", report.vocabulary.at(token.id)},
                    {"count", token.count},
                    {"confidence", token.confidence},
                    {"lift", token.lift}});
  return list;
}

Json group_to_json(const GroupingDetails& details, std::size_t group, const GroupsReport& report) {
  return {{"size", details.sizes[group]},
          {"confidence", details.confidence[group]},
          {"category", name_of(details.purity.largest[group])},
          {"categories", details.purity.shares[group]},
          {"by_confidence", to_json(details.typical[group].by_confidence, report)},
          {"by_lift", to_json(details.typical[group].by_lift, report)}};
}

Json grouping_to_json(std::size_t number, const GroupsReport& report) {
  const GroupAssignments& grouping = report.groupings[number];
  const GroupingDetails& details = report.details[number];
  Json json = {{"layer", grouping.layer}, {"head", nullptr}};
  if (report.per_head) json["head"] = grouping.head;
  json["largest_group"] = details.largest;
  json["smallest_group"] = details.smallest;
  json["size_entropy"] = details.size_entropy;
  json["assignment_entropy"] = grouping.entropy;
  json["confidence"] = details.mean_confidence;
  json["purity"] = {{"categories", details.purity.purity},
                    {"categories_base", details.purity.base},
                    {"normalised_mutual_information", details.purity.information},
                    {"word_beginnings", details.purity.word_beginnings},
                    {"word_beginnings_base", details.purity.word_beginnings_base}};
  json["groups"] = Json::array();
  for (std::size_t g = 0; g < details.sizes.size(); ++g)
    json["groups"].push_back(group_to_json(details, g, report));
  return json;
}

Json passage_to_json(const GroupsReport& report) {
  Json tokens = Json::array();
  for (Index t = report.passage_first; t < report.passage_end; ++t) {
    Json groups = Json::array();
    for (const GroupAssignments& grouping : report.groupings)
      groups.push_back(grouping.group_of_token[static_cast<std::size_t>(t)]);
    tokens.push_back({{"text", report.text_at(t)}, {"groups", groups}});
  }
  return {{"first", report.passage_first}, {"tokens", tokens}};
}

Json matrix_to_json(const GroupsReport& report, double Agreement::*figure) {
  Json rows = Json::array();
  for (Index a = 0; a < report.layers; ++a) {
    Json row = Json::array();
    for (Index b = 0; b < report.layers; ++b)
      row.push_back(report.between[static_cast<std::size_t>(a * report.layers + b)].*figure);
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

Json groups_to_json(const GroupsReport& report) {
  Json categories = Json::array();
  for (const std::string_view name : enum_names(TokenCategory{})) categories.push_back(name);
  Json json = {{"model", report.model},
               {"adapter", report.adapter},
               {"grouping", report.grouping},
               {"attention", report.attention},
               {"context", report.context},
               {"documents", report.text.names},
               {"tokens", report.text.tokens()},
               {"layers", report.layers},
               {"heads", report.heads},
               {"num_groups", report.groups},
               {"local_window", report.local_window},
               {"category_names", categories}};
  json["between_layers"] = {
      {"adjusted_rand_index", matrix_to_json(report, &Agreement::rand)},
      {"normalised_mutual_information", matrix_to_json(report, &Agreement::information)}};
  json["against"] = report.against ? to_json(*report.against) : Json();
  json["checkpoints"] = Json::array();
  for (const LayerAgreement& step : report.checkpoints)
    json["checkpoints"].push_back(to_json(step));
  json["groupings"] = Json::array();
  for (std::size_t i = 0; i < report.groupings.size(); ++i)
    json["groupings"].push_back(grouping_to_json(i, report));
  json["passage"] = passage_to_json(report);
  return json;
}

}  // namespace focus
