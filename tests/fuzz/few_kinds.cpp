#include "autograd/check.h"
#include "focus/focus_model.h"
#include "focus/lora/lora.h"

// The table of what can be put onto a decoder, for who reads settings alone: Focus, LoRA, and one
// mechanism in the place of all others, which would bring the kernels along.
namespace focus {
namespace {

struct WindowSettings {
  std::int64_t tokens = 128;
  double share = 0.5;
  void visit(auto&& f) {
    f("tokens", tokens, "", Range{1, 1 << 27});
    f("share", share, "", Range{0, 1});
  }
  void validate() const { check(tokens > 0, "window.tokens is {}, wanted at least 1", tokens); }
};

}  // namespace

const std::vector<AdapterKind>& adapter_kinds() {
  static const std::vector<AdapterKind> kinds = {
      {.name = "focus", .help = "", .defaults = FocusConfig{}, .has_parameters = true},
      {.name = "lora",
       .help = "",
       .defaults = LoraConfig{},
       .is_attention = false,
       .has_parameters = true},
      {.name = "window", .help = "", .defaults = WindowSettings{}}};
  return kinds;
}

const AdapterKind& find_attention(std::string_view name, const std::string& where) {
  if (name == "window") return adapter_kinds().back();
  fail("{}: unknown attention \"{}\"; the rivals are window", where, name);
}

}  // namespace focus
