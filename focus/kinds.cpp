#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "focus/adapter.h"

// The table of what can be attached to a decoder. A mechanism is one file that defines
// `AdapterKind <name>_kind()`, a declaration and a line here.
namespace focus {

AdapterKind focus_kind();
AdapterKind lora_kind();
AdapterKind window_kind();
AdapterKind performer_kind();
AdapterKind routing_transformer_kind();
AdapterKind sparq_kind();
AdapterKind magicpig_kind();
AdapterKind sink_window_kind();
AdapterKind quest_kind();
AdapterKind moba_kind();
AdapterKind oracle_kind();
AdapterKind random_groups_kind();
AdapterKind indexer_kind();

const std::vector<AdapterKind>& adapter_kinds() {
  static const std::vector<AdapterKind> kinds = {
      focus_kind(),
      lora_kind(),
      window_kind(),
      performer_kind(),
      routing_transformer_kind(),
      sparq_kind(),
      magicpig_kind(),
      sink_window_kind(),
      quest_kind(),
      moba_kind(),
      oracle_kind(),
      random_groups_kind(),
      indexer_kind(),
  };
  return kinds;
}

const AdapterKind& adapter_kind(std::string_view name) {
  const auto found = std::ranges::find(adapter_kinds(), name, &AdapterKind::name);
  if (found == adapter_kinds().end())
    throw std::logic_error(fmt::format("unknown adapter kind {}", name));
  return *found;
}

void Adapter::start_from(Adapter& other, const std::string& where) {
  std::map<std::string, Tensor> values;
  other.visit_parameters(
      [&](const std::string& name, Variable& p) { values.emplace(name, p.value()); });
  visit_parameters([&](const std::string& name, Variable& p) {
    const auto found = values.find(name);
    if (found == values.end() || found->second.shape() != p.shape())
      fail("{}: {} is {}, but this run has {}; give the run the settings of that one", where, name,
           found == values.end() ? "missing" : fmt::format("{}", found->second.shape()), p.shape());
    std::ranges::copy(found->second.span(), p.mutable_value().data());
  });
}

std::vector<SavedAdapter> open_adapters(const StoreReader& store, const ModelConfig& shape) {
  std::vector<SavedAdapter> saved;
  for (const AdapterKind& kind : adapter_kinds())
    if (store.has(std::string(kind.store_group)))
      if (auto one = kind.open(kind, store, shape)) saved.push_back(*std::move(one));
  return saved;
}

void check_base(const std::string& where, const std::string& base_fingerprint,
                const std::string& fingerprint, const std::string& base) {
  if (base_fingerprint != fingerprint)
    fail("{}: made for the base with fingerprint {}, but {} has {}; use the base it was trained on",
         where, base_fingerprint, base, fingerprint);
}

const AdapterKind& find_attention(std::string_view name, const std::string& where) {
  if (name == "routing") name = "routing_transformer";
  std::vector<std::string_view> known = {"dense", "local", "soft", "hard", "summary"};
  for (const AdapterKind& kind : adapter_kinds()) {
    if (!kind.is_attention() || kind.role == AdapterRole::focus) continue;
    if (kind.name == name) return kind;
    known.push_back(kind.name);
  }
  const auto slip = [&](std::string_view other) { return edit_distance(name, other); };
  const std::string_view nearest = *std::ranges::min_element(known, {}, slip);
  fail("{}: unknown attention \"{}\"; {}", where, shown(name),
       slip(nearest) <= 2 ? fmt::format("did you mean {}?", nearest)
                          : fmt::format("expected one of {}", fmt::join(known, ", ")));
}

}  // namespace focus
