#include "focus/evaluation/attention_spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/settings/recipe.h"

namespace focus {
namespace {

using Kind = AttentionMode::Kind;

// What may follow the words of Focus.
struct NoSettings {
  void visit(auto&&) {}
  void validate() const {}
};
struct SoftSettings {
  std::optional<Balance> balance;
  void visit(auto&& f) { f("balance", balance); }
  void validate() const {}
};
struct HardSettings {
  int k = 1;
  std::optional<HardGate> gate = {};
  std::optional<Balance> balance = {};
  int least = 1;  // of k
  void visit(auto&& f) {
    f("k", k, "", Range{static_cast<double>(least), kMaxGroups});
    f("gate", gate);
    f("balance", balance);
  }
  void validate() const {}
};

struct SummarySettings {
  SummaryWord word;
  void visit(auto&& f) {
    f("m", word.read_groups, "", Range{0, kMaxKeyGroups});
    f("choice", word.choice);
    f("rest", word.rest);
    f("local_window", word.local_window, "", Range{0, 1 << 27});
    f("block", word.block, "", Range{1, 1 << 20});
    f("sinks", word.sinks, "", Range{0, kMaxSinks});
  }
  void validate() const {}
};

std::vector<std::string> split(const std::string& word) {
  std::vector<std::string> parts(1);
  for (const char c : word)
    if (c == ':')
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

/// Takes KEY=0+3 out of a word's parts, where it is one of them: the numbers.
std::vector<Index> take_numbers(std::vector<std::string>& parts, const std::string& key,
                                const std::string& where) {
  const std::string begin = key + "=";
  const auto said = std::find_if(parts.begin() + 1, parts.end(),
                                 [&](const std::string& part) { return part.starts_with(begin); });
  if (said == parts.end()) return {};
  std::vector<Index> numbers;
  const char* at = said->data() + begin.size();
  const char* const end = said->data() + said->size();
  do {
    const auto [next, problem] = std::from_chars(at, end, numbers.emplace_back(-1));
    if (problem != std::errc() || numbers.back() < 0 || (next != end && *next != '+'))
      fail("{}: {} is no numbers such as {}=0+3", where, shown(*said), key);
    at = next + 1;
  } while (at <= end);
  parts.erase(said);
  return numbers;
}

/// Reads what stands behind the name into the settings.
template <class Settings>
void read_settings(const std::vector<std::string>& parts, Settings& settings,
                   const std::string& where) {
  std::vector<std::string> overrides;
  const auto fields = recipe_fields(settings);
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const bool bare = parts[i].find('=') == std::string::npos;
    if (fields.empty()) fail("{}: {} has no settings", where, parts[0]);
    if (bare && i > 1)
      fail("{}: \"{}\" is no KEY=VALUE; only the first setting may be a value alone", where,
           shown(parts[i]));
    overrides.push_back(bare ? fields[0].key + "=" + parts[i] : parts[i]);
  }
  try {
    read_recipe_text("", "", overrides, settings);
    settings.validate();
  } catch (const std::exception& error) {
    std::string problems = error.what();
    std::ranges::replace(problems, '\n', ';');
    fail("{}: {}", where, problems);
  }
}

std::vector<Balance> balances_of(const AttentionSpec& spec, Balance trained, UnsaidBalance unsaid) {
  if (spec.balance) return {*spec.balance};
  if (unsaid == UnsaidBalance::trained || trained == Balance::none) return {trained};
  if (trained == Balance::sequence) return {Balance::carried, Balance::sequence};
  return {Balance::carried};
}

bool same(const AttentionSpec& a, const AttentionSpec& b) {
  return a.kind == b.kind && a.top_k == b.top_k && a.balance == b.balance && a.gate == b.gate &&
         a.summary == b.summary && !a.settings && !b.settings && a.layers == b.layers;
}

/// A word of Focus, as what it lists.
std::vector<AttentionSpec> resolve_focus(const AttentionSpec& spec, const FocusConfig& config,
                                         UnsaidBalance unsaid) {
  const bool keys = config.routing == RoutingSpace::keys;
  if (spec.kind == "local") return {{.kind = "local"}};
  if (spec.kind == "summary" || keys) return {resolve_summary(spec, config)};
  std::vector<AttentionSpec> list;
  const int most = spec.top_k == 0 ? config.num_groups : std::min(spec.top_k, config.num_groups);
  for (const Balance balance : balances_of(spec, config.balance, unsaid)) {
    if (spec.kind != "hard") list.push_back({.kind = "soft", .balance = balance});
    if (spec.kind == "soft") continue;
    for (int k = spec.kind == "hard" ? most : 1; k <= most; ++k)
      list.push_back({.kind = "hard",
                      .top_k = k,
                      .balance = balance,
                      .gate = spec.gate.value_or(config.hard_gate)});
  }
  return list;
}

}  // namespace

AttentionSpec resolve_summary(const AttentionSpec& spec, const FocusConfig& config) {
  SummaryWord word = spec.summary;
  const auto fill = [](auto& said, const auto& unsaid) {
    if (!said) said = unsaid;
  };
  // A number of groups to read says how they are chosen, too.
  fill(word.choice, word.read_groups ? GroupChoice::mass : config.choice);
  fill(word.read_groups, std::min(config.read_groups, config.num_groups));
  fill(word.rest, config.rest);
  fill(word.local_window, config.local_window);
  fill(word.block, config.block);
  fill(word.sinks, config.sinks);
  return {.kind = "summary", .balance = spec.balance.value_or(config.balance), .summary = word};
}

AttentionMode AttentionSpec::mode() const {
  if (kind == "summary") {
    const bool own = summary.choice == GroupChoice::own;
    return {.kind = Kind::summary,
            .balance = balance.value_or(Balance::carried),
            .summary = {.zones = {.window = summary.local_window.value_or(0),
                                  .block = summary.block.value_or(1),
                                  .sinks = summary.sinks.value_or(0)},
                        .top_groups = own ? 1 : summary.read_groups.value_or(0),
                        .rest = summary.rest.value_or(Rest::summary),
                        .own_group = own},
            .top_groups_of_layer = summary.m_by_layer,
            .window_of_layer = summary.w_by_layer};
  }
  if (kind == "local") return {.kind = Kind::hard, .top_k = 0};
  if (kind == "soft") return {.kind = Kind::soft, .balance = balance.value_or(Balance::carried)};
  if (kind == "hard")
    return {.kind = Kind::hard,
            .top_k = top_k,
            .balance = balance.value_or(Balance::carried),
            .hard_gate = gate.value_or(HardGate::drop)};
  return {.kind = Kind::dense};
}

AttentionSpec parse_attention(const std::string& word, const std::string& where) {
  std::vector<std::string> parts = split(word);
  const std::string here = fmt::format("{} {}", where, shown(word));
  AttentionSpec spec{.kind = parts[0], .layers = take_numbers(parts, "layers", here)};
  std::ranges::sort(spec.layers);
  if (spec.kind == "dense" || spec.kind == "local" || spec.kind == "trained") {
    NoSettings none;
    read_settings(parts, none, here);
  } else if (spec.kind == "soft") {
    SoftSettings soft;
    read_settings(parts, soft, here);
    spec.balance = soft.balance;
  } else if (spec.kind == "summary") {
    SummarySettings summary;
    summary.word.m_by_layer = take_numbers(parts, "m_by_layer", here);
    summary.word.w_by_layer = take_numbers(parts, "w_by_layer", here);
    read_settings(parts, summary, here);
    spec.summary = summary.word;
  } else if (spec.kind == "hard" || spec.kind == "focus") {
    const int least = spec.kind == "hard" ? 1 : 0;
    HardSettings hard{.k = least, .least = least};
    read_settings(parts, hard, here);
    spec.top_k = hard.k;
    spec.balance = hard.balance;
    spec.gate = hard.gate;
  } else {
    const AdapterKind& kind = find_attention(spec.kind, where);
    spec.kind = kind.name;
    spec.settings = kind.defaults;
    read_settings(parts, *spec.settings, here);
  }
  return spec;
}

std::vector<AttentionSpec> resolve_attentions(const std::vector<AttentionSpec>& specs,
                                              const LoadedModel& model, UnsaidBalance unsaid,
                                              const std::string& where) {
  std::vector<AttentionSpec> list;
  const auto add = [&](const AttentionSpec& spec) {
    if (std::ranges::none_of(list, [&](const AttentionSpec& other) { return same(spec, other); }))
      list.push_back(spec);
  };
  const Index layers = model.decoder->config().num_hidden_layers;
  for (const AttentionSpec& spec : specs) {
    if (!spec.layers.empty() && spec.layers.back() >= layers)
      fail("{} {}: layer {}, but {} has {}, the first of which is 0", where, spec.kind,
           spec.layers.back(), model.where, layers);
    for (const auto& [key, numbers] : {std::pair("m_by_layer", &spec.summary.m_by_layer),
                                       std::pair("w_by_layer", &spec.summary.w_by_layer)})
      if (!numbers->empty() && static_cast<Index>(numbers->size()) != layers)
        fail("{} {}: {} has {} numbers for {} layers", where, spec.kind, key, numbers->size(),
             layers);
    if (spec.kind == "trained" && model.mechanism() == nullptr)
      fail("{} trained: {} was not trained with another attention than dense or Focus", where,
           model.where);
    if (spec.settings && find_attention(spec.kind, where).has_parameters &&
        (model.mechanism() == nullptr || model.mechanism()->kind() != spec.kind))
      fail(
          "{} {}: {} has none; train one (attention={} of method retrofit) and name its file with "
          "--adapter",
          where, spec.kind, model.where, spec.kind);
    if (!spec.needs_focus()) {
      add(spec);
      continue;
    }
    if (model.focus() == nullptr)
      fail("{} {}: {} has no Focus; name one with --adapter", where, spec.kind, model.where);
    const FocusConfig& config = model.focus()->config();
    if (model.focus()->groups_keys() && (spec.kind == "soft" || spec.kind == "hard"))
      fail("{} {}: the Focus of {} groups keys and has neither; it has summary:M", where, spec.kind,
           model.where);
    if (model.focus()->groups_keys() && spec.summary.choice == GroupChoice::own)
      fail("{} summary: choice own is for groups of tokens; the Focus of {} groups keys", where,
           model.where);
    Index most = spec.summary.read_groups.value_or(0);
    for (const Index of_layer : spec.summary.m_by_layer) most = std::max(most, of_layer);
    if (most > config.num_groups)
      fail("{} summary:{}: the Focus has {} groups; give no more", where, most, config.num_groups);
    if (spec.kind == "hard" && spec.top_k > config.num_groups)
      fail("{} hard:{}: the Focus has {} groups; give no more", where, spec.top_k,
           config.num_groups);
    for (AttentionSpec& one : resolve_focus(spec, config, unsaid)) {
      one.layers = spec.layers;
      add(one);
    }
  }
  return list;
}

std::vector<AttentionSpec> resolve_words(const std::vector<std::string>& words,
                                         const LoadedModel& model, UnsaidBalance unsaid,
                                         const std::string& where) {
  std::vector<AttentionSpec> specs;
  specs.reserve(words.size());
  for (const std::string& word : words) specs.push_back(parse_attention(word, where));
  if (specs.empty()) {
    specs.push_back({.kind = "dense"});
    if (model.focus()) specs.push_back({.kind = "focus"});
    if (model.mechanism()) specs.push_back({.kind = "trained"});
  }
  return resolve_attentions(specs, model, unsaid, where);
}

AttentionSpec resolve_attention(const AttentionSpec& spec, const LoadedModel& model,
                                const std::string& where) {
  return resolve_attentions({spec}, model, UnsaidBalance::trained, where).front();
}

AttentionSpec own_attention(const LoadedModel& model) {
  if (model.mechanism() != nullptr) return {.kind = "trained"};
  if (model.focus() == nullptr) return {};
  if (const FocusConfig& config = model.focus()->config(); config.training == Training::summary)
    return resolve_summary({.kind = "summary"}, config);
  return {.kind = "soft", .balance = model.focus()->config().balance};
}

ActiveAttention::ActiveAttention(LoadedModel& model, const AttentionSpec& spec)
    : mode_(spec.mode()), layers_(spec.layers) {
  if (spec.needs_focus()) {
    changed_ = model.focus();
    check(changed_ != nullptr, "{}: has no Focus for {} attention", model.where, spec.kind);
    before_ = std::exchange(changed_->mode, mode_);
    if (mode_.kind != Kind::hard || mode_.top_k > 0) focus_ = changed_;
  } else if (spec.kind == "trained") {
    mechanism_ = model.mechanism();
    check(mechanism_ != nullptr, "{}: was not trained with a mechanism", model.where);
  } else if (spec.kind == "dense") {
    dense_.emplace(*model.decoder, AttentionMechanism{});
  } else {
    made_ = make_mechanism(spec.kind, spec.settings.value(), model.decoder->config());
    if (Mechanism* const trained = model.mechanism();
        trained != nullptr && trained->kind() == spec.kind)
      made_->copy_parameters(*trained);
    made_->compose(*model.decoder);
    mechanism_ = made_.get();
  }
  if (layers_.empty() || dense_) return;
  std::vector<AttentionMechanism> composed;
  for (const Block& block : model.decoder->layers()) composed.push_back(block.self_attn.mechanism);
  dense_.emplace(*model.decoder, AttentionMechanism{});
  for (const Index layer : layers_) {
    const auto i = static_cast<std::size_t>(layer);
    model.decoder->layers()[i].self_attn.mechanism = composed[i];
  }
}

ActiveAttention::~ActiveAttention() {
  if (changed_ != nullptr) changed_->mode = before_;
}

std::string ActiveAttention::name() const {
  std::string everywhere = mechanism_ != nullptr ? mechanism_->name() : mode_.name();
  if (layers_.empty()) return everywhere;
  return fmt::format("{} in layer {}", everywhere, fmt::join(layers_, "+"));
}

bool ActiveAttention::causal() const {
  if (mechanism_ != nullptr) return mechanism_->causal();
  return focus_ == nullptr || mode_.balance != Balance::sequence;
}

std::string ActiveAttention::routing() const {
  if (focus_ == nullptr) return causal() ? "-" : "not causal";
  if (focus_->groups_keys()) return "keys";
  const std::string name = value_text(mode_.balance);
  return causal() ? name : name + " (not causal)";
}

std::string ActiveAttention::title() const {
  const std::string how = routing();
  return how == "-" ? name() : name() + ", " + how;
}

Adapter* ActiveAttention::counted() const {
  if (mechanism_ != nullptr) return mechanism_;
  return changed_;
}

void ActiveAttention::start_counting() {
  if (counted() != nullptr) counted()->start_counting();
}

AttentionCounts ActiveAttention::stop_counting() {
  if (counted() == nullptr) return {};
  counted()->stop_counting();
  return counted()->counts();
}

}  // namespace focus
