#include <algorithm>
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
  std::string known;
  for (const AdapterKind& kind : adapter_kinds()) {
    if (!kind.is_attention() || kind.role == AdapterRole::focus) continue;
    if (kind.name == name) return kind;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
  }
  fail("{}: unknown attention \"{}\"; the baselines are {}", where, shown(name), known);
}

}  // namespace focus
