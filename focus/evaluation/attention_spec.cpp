#include "focus/evaluation/attention_spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/settings/config.h"

namespace focus {
std::vector<std::string> split_word(const std::string& word, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(word + separator);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

namespace {

/// Takes KEY=0+3 out of a word's parts, where it is one of them: the numbers.
std::vector<Index> take_numbers(std::vector<std::string>& parts, const std::string& key,
                                const std::string& where) {
  const std::string begin = key + "=";
  const auto said = std::find_if(parts.begin() + 1, parts.end(),
                                 [&](const std::string& part) { return part.starts_with(begin); });
  if (said == parts.end()) return {};
  std::vector<Index> numbers;
  for (const std::string& number : split_word(said->substr(begin.size()), '+')) {
    constexpr std::size_t kMostDigits = 18;
    if (number.empty() || number.size() > kMostDigits ||
        number.find_first_not_of("0123456789") != std::string::npos)
      fail("{}: {} is not a list of numbers such as {}=0+3", where, shown(*said), key);
    numbers.push_back(std::stoll(number));
  }
  parts.erase(said);
  return numbers;
}

/// Reads what follows the name into the spec.
void read_settings(const std::vector<std::string>& parts, AttentionSpec& spec,
                   const std::string& where) {
  std::vector<std::string> overrides;
  const auto fields = config_fields(spec);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const bool bare = parts[i].find('=') == std::string::npos;
    if (fields.empty()) fail("{}: {} has no settings", where, parts[0]);
    if (bare && i > 1)
      fail("{}: \"{}\" is not KEY=VALUE; only the first setting may be a bare value", where,
           shown(parts[i]));
    overrides.push_back(bare ? fields[0].key + "=" + parts[i] : parts[i]);
  }
  try {
    read_config_text("", "", overrides, spec);
    if (spec.settings) spec.settings->validate();
  } catch (const std::exception& error) {
    std::string problems = error.what();
    std::ranges::replace(problems, '\n', ';');
    fail("{}: {}", where, problems);
  }
}

std::vector<Balance> balances_of(const AttentionSpec& spec, Balance trained,
                                 DefaultBalance otherwise) {
  if (spec.balance) return {*spec.balance};
  if (otherwise == DefaultBalance::trained || trained == Balance::none) return {trained};
  if (trained == Balance::sequence) return {Balance::carried, Balance::sequence};
  return {Balance::carried};
}

bool same(const AttentionSpec& a, const AttentionSpec& b) {
  return a.kind == b.kind && a.top_k == b.top_k && a.balance == b.balance && a.gate == b.gate &&
         a.summary == b.summary && a.m_by_layer == b.m_by_layer && a.w_by_layer == b.w_by_layer &&
         !a.settings && !b.settings;
}

/// A spec of Focus, as what it lists.
std::vector<AttentionSpec> resolve_focus(const AttentionSpec& spec, const FocusConfig& config,
                                         DefaultBalance balance) {
  AttentionSpec each = spec;
  const bool hard = spec.kind == AttentionKind::hard;
  if (spec.kind != AttentionKind::local && !grouping_kind(config).groups_tokens)
    each.kind = AttentionKind::summary;
  each = each.or_from(config);
  if (each.kind == AttentionKind::local || each.kind == AttentionKind::summary) return {each};
  std::vector<AttentionSpec> list;
  const int most = spec.top_k == 0 ? config.num_groups : std::min(spec.top_k, config.num_groups);
  for (const Balance one : balances_of(spec, *each.balance, balance)) {
    each.balance = one;
    each.kind = AttentionKind::soft;
    each.top_k = 0;
    each.gate = {};
    if (!hard) list.push_back(each);
    if (spec.kind == AttentionKind::soft) continue;
    each.kind = AttentionKind::hard;
    each.gate = spec.gate;
    for (int k = hard ? most : 1; k <= most; ++k) {
      each.top_k = k;
      list.push_back(each.or_from(config));
    }
  }
  return list;
}

/// Throws where a spec of Focus asks for what the model's has not.
void check_focus(const AttentionSpec& spec, const LoadedModel& model, const std::string& where) {
  if (model.focus() == nullptr)
    fail("{} {}: {} has no Focus; attach one with --adapter", where, spec.word(), model.where);
  const FocusConfig& config = model.focus()->config();
  const GroupingKind& grouping = grouping_kind(config);
  if (!grouping.groups_tokens &&
      (spec.kind == AttentionKind::soft || spec.kind == AttentionKind::hard))
    fail("{} {}: the Focus of {} groups {} and supports only summary:M", where, spec.word(),
         model.where, grouping.name);
  if (!grouping.groups_tokens && spec.summary.selection == GroupSelection::own)
    fail("{} summary: selection own is for groups of tokens; the Focus of {} groups {}", where,
         model.where, grouping.name);
  Index most = spec.summary.num_selected_groups.value_or(0);
  for (const Index of_layer : spec.m_by_layer) most = std::max(most, of_layer);
  if (most > config.num_groups)
    fail("{} summary:{}: the Focus has {} groups; give at most that many", where, most,
         config.num_groups);
  if (spec.kind == AttentionKind::hard && spec.top_k > config.num_groups)
    fail("{} hard:{}: the Focus has {} groups; give at most that many", where, spec.top_k,
         config.num_groups);
}

/// Throws where a spec does not fit the model's layers, or asks for a mechanism that it has not.
void check_fits(const AttentionSpec& spec, const LoadedModel& model, const std::string& where) {
  const Index layers = model.decoder->config().num_hidden_layers;
  for (const auto& [key, numbers] :
       {std::pair("m_by_layer", &spec.m_by_layer), std::pair("w_by_layer", &spec.w_by_layer)})
    if (!numbers->empty() && static_cast<Index>(numbers->size()) != layers)
      fail("{} {}: {} has {} values for {} layers", where, spec.word(), key, numbers->size(),
           layers);
  if (spec.kind == AttentionKind::trained && model.mechanism() == nullptr)
    fail("{} trained: {} was trained with dense or Focus attention only", where, model.where);
  if (spec.kind == AttentionKind::baseline &&
      find_attention(spec.mechanism, where).has_parameters() &&
      (model.mechanism() == nullptr || model.mechanism()->kind() != spec.mechanism))
    fail(
        "{} {}: {} has none; train one (attention={} of method retrofit) and give its file as "
        "--adapter",
        where, spec.mechanism, model.where, spec.mechanism);
  if (spec.needs_focus()) check_focus(spec, model, where);
}

/// The kind that a spec begins with; baseline for any other name.
AttentionKind kind_named(const std::string& name) {
  constexpr auto names = enum_names(AttentionKind{});
  const auto found = std::ranges::find(names, name);
  return found == names.end() ? AttentionKind::baseline
                              : static_cast<AttentionKind>(found - names.begin());
}

/// Each as resolve_words() does it.
std::vector<AttentionSpec> resolve_attentions(const std::vector<AttentionSpec>& specs,
                                              const LoadedModel& model, DefaultBalance balance,
                                              const std::string& where) {
  std::vector<AttentionSpec> list;
  const auto add = [&](const AttentionSpec& spec) {
    if (std::ranges::none_of(list, [&](const AttentionSpec& other) { return same(spec, other); }))
      list.push_back(spec);
  };
  for (const AttentionSpec& spec : specs) {
    check_fits(spec, model, where);
    if (!spec.needs_focus()) {
      add(spec);
      continue;
    }
    for (const AttentionSpec& one : resolve_focus(spec, model.focus()->config(), balance)) add(one);
  }
  return list;
}

}  // namespace

AttentionSpec parse_attention(const std::string& word, const std::string& where) {
  std::vector<std::string> parts = split_word(word, ':');
  const std::string here = fmt::format("{} {}", where, shown(word));
  AttentionSpec spec{.kind = kind_named(parts[0])};
  if (spec.kind == AttentionKind::hard) spec.top_k = 1;
  if (spec.kind == AttentionKind::summary) {
    spec.m_by_layer = take_numbers(parts, "m_by_layer", here);
    spec.w_by_layer = take_numbers(parts, "w_by_layer", here);
  }
  if (spec.kind == AttentionKind::baseline) {
    const AdapterKind& kind = find_attention(parts[0], where);
    spec.mechanism = kind.name;
    spec.settings = kind.defaults;
  }
  read_settings(parts, spec, here);
  return spec;
}

std::vector<AttentionSpec> resolve_words(const std::vector<std::string>& words,
                                         const LoadedModel& model, DefaultBalance balance,
                                         const std::string& where) {
  std::vector<AttentionSpec> specs;
  for (const std::string& word : words) specs.push_back(parse_attention(word, where));
  if (specs.empty()) {
    specs.push_back({.kind = AttentionKind::dense});
    if (model.focus()) specs.push_back({.kind = AttentionKind::focus});
    if (model.mechanism()) specs.push_back({.kind = AttentionKind::trained});
  }
  return resolve_attentions(specs, model, balance, where);
}

AttentionSpec resolve_attention(const AttentionSpec& spec, const LoadedModel& model,
                                const std::string& where) {
  return resolve_attentions({spec}, model, DefaultBalance::trained, where).front();
}

AttentionSpec attention_to_generate(const std::string& word, const LoadedModel& model,
                                    const std::string& where) {
  AttentionSpec spec;
  const FocusModel* const focus = model.focus();
  if (!word.empty())
    spec = parse_attention(word, where);
  else if (model.mechanism() != nullptr)
    spec = {.kind = AttentionKind::trained};
  else if (focus != nullptr && focus->config().training == Training::summary)
    spec = {.kind = AttentionKind::summary};
  else if (focus != nullptr)
    spec = {.kind = AttentionKind::hard, .top_k = 1};
  const bool keys = focus != nullptr && !focus->grouping_kind().groups_tokens;
  if (!keys && (spec.kind == AttentionKind::soft || spec.kind == AttentionKind::focus))
    fail("{} {}: soft attention reads every key; generate with dense, hard:K, summary:M or local",
         where, word);
  spec = resolve_attention(spec, model, where);
  if (spec.balance == Balance::sequence)
    fail(
        "{}: with sequence balance a token's groups depend on later tokens, so it cannot generate; "
        "{} hard:{}:balance=carried uses the carried potentials",
        model.where, where, std::max(1, spec.top_k));
  return spec;
}

AttentionSpec own_attention(const LoadedModel& model) {
  if (model.mechanism() != nullptr) return {.kind = AttentionKind::trained};
  if (model.focus() == nullptr) return {};
  const FocusConfig& config = model.focus()->config();
  const bool summary = config.training == Training::summary;
  return AttentionSpec{.kind = summary ? AttentionKind::summary : AttentionKind::soft}.or_from(
      config);
}

ActiveAttention::ActiveAttention(LoadedModel& model, const AttentionSpec& spec) {
  if (spec.needs_focus()) {
    changed_ = model.focus();
    check(changed_ != nullptr, "{}: has no Focus for {} attention", model.where, spec.word());
    mode_ = spec.or_from(changed_->config());
    before_ = std::exchange(changed_->mode, mode_);
    if (mode_.kind != AttentionKind::local) focus_ = changed_;
  } else if (spec.kind == AttentionKind::trained) {
    mechanism_ = model.mechanism();
    check(mechanism_ != nullptr, "{}: was not trained with a mechanism", model.where);
  } else if (spec.kind == AttentionKind::dense) {
    dense_.emplace(*model.decoder, AttentionMechanism{});
  } else {
    made_ = make_mechanism(spec.mechanism, spec.settings.value(), model.decoder->config());
    if (Mechanism* const trained = model.mechanism();
        trained != nullptr && trained->kind() == spec.mechanism)
      made_->copy_parameters(*trained);
    made_->attach(*model.decoder);
    mechanism_ = made_.get();
  }
  counted_ = mechanism_ != nullptr ? static_cast<Adapter*>(mechanism_) : changed_;
}

ActiveAttention::~ActiveAttention() {
  if (changed_ != nullptr) changed_->mode = before_;
}

std::string ActiveAttention::name() const {
  return mechanism_ != nullptr ? mechanism_->name() : mode_.name();
}

AttentionLabel ActiveAttention::label() const {
  AttentionLabel label{.name = name(),
                       .kind = mechanism_ ? AttentionKind::baseline : mode_.kind,
                       .causal = causal()};
  if (mode_.kind == AttentionKind::hard || mode_.kind == AttentionKind::local)
    label.top_k = mode_.top_k;
  if (mode_.kind == AttentionKind::hard) label.gate = mode_.gate;
  if (focus_ != nullptr)
    label.routing = focus_->grouping_kind().is_routed ? value_text(mode_.balance.value())
                                                      : std::string(focus_->grouping().kind());
  return label;
}

AttentionCounts ActiveAttention::stop_counting() {
  if (counted_ == nullptr) return {};
  counted_->stop_counting();
  return counted_->counts();
}

}  // namespace focus
