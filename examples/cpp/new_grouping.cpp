// A grouping of one's own: groups of tokens by a hash of their input, without training. The group
// of token i is the largest of [R h_i; -R h_i], R normal(0, 1) of a seed and of its layer (angular
// locality-sensitive hashing: Andoni et al. 2015, arXiv 1509.02897; Reformer, Kitaev et al. 2020,
// arXiv 2001.04451). Prints what a model makes of a text with these groups:
//   new_grouping MODEL_FOLDER TEXT.txt
#include <fmt/format.h>
#include <focus/all.h>

#include <algorithm>

namespace {

struct HashSettings {
  std::int64_t seed = 1;

  template <class F>
  void visit(F&& f) {
    f("seed", seed, "seed of the random directions", {0, 1e18});
  }
  void validate() const {}
};

class HashGrouping final : public focus::Grouping {
 public:
  HashGrouping(const focus::FocusConfig& config, const focus::FocusShape& shape)
      : Grouping(config.num_groups),
        directions_((num_groups() + 1) / 2),
        updates_(shape.num_layers) {
    focus::Rng rng(static_cast<std::uint64_t>(config.of<HashSettings>().seed));
    for (focus::Index i = 0; i < shape.num_layers; ++i) {
      focus::Tensor rotation({directions_, shape.hidden_size});
      for (focus::Real& x : rotation.span()) x = static_cast<focus::Real>(rng.normal());
      rotations_.emplace_back(focus::Variable(rotation));
    }
  }

  std::string_view kind() const override { return "hash"; }
  focus::GroupIds group_ids(const focus::MechanismInputs& in, focus::Balance) override {
    const focus::NoGrad guard;
    const focus::Variable h(in.h.value());
    const focus::Tensor turned = focus::linear(h, rotations_[in.layer], {}).value();
    focus::GroupIds found{.groups = num_groups(), .heads = 1, .ids = {}};
    for (focus::Index row = 0; row < turned.rows(); ++row)
      found.ids.push_back(hash_of(turned.data() + row * directions_));
    return found;
  }
  focus::Index assignment_cost(const focus::MechanismInputs& in) const override {
    return directions_ * in.h.dim(2);
  }
  std::int64_t& updates(focus::Index layer) override { return updates_[layer]; }

 private:
  /// The last direction of an odd number of groups has one side only.
  std::uint8_t hash_of(const focus::Real* turned) const {
    focus::Index best = 0;
    for (focus::Index g = 1; g < num_groups(); ++g)
      if (side(turned, g) > side(turned, best)) best = g;
    return static_cast<std::uint8_t>(best);
  }
  focus::Real side(const focus::Real* turned, focus::Index g) const {
    return g < directions_ ? turned[g] : -turned[g - directions_];
  }

  focus::Index directions_;
  std::vector<focus::Weight> rotations_;  // [directions, hidden_size]
  std::vector<std::int64_t> updates_;
};

}  // namespace

int main(int argc, char** argv) try {
  focus::check(argc == 3, "wanted: new_grouping MODEL_FOLDER TEXT.txt");
  focus::add_grouping(
      {.name = "hash",
       .help = "groups of tokens by a hash of a layer's input",
       .defaults = HashSettings{},
       .tensors = [](const focus::FocusConfig&,
                     const focus::FocusShape&) { return std::vector<focus::LayerTensor>{}; },
       .make = [](const focus::FocusConfig& config, const focus::FocusShape& shape,
                  focus::Rng&) -> std::unique_ptr<focus::Grouping> {
         return std::make_unique<HashGrouping>(config, shape);
       }});

  focus::FocusConfig config;  // what the section `focus` of a config says
  focus::read_config_text("grouping: hash\nnum_groups: 8\nlocal_window: 16\nhash: {seed: 7}",
                          "new_grouping", {}, config);
  focus::LoadedModel model = focus::open(argv[1]);
  focus::Rng rng(1);
  model.attach(std::make_unique<focus::FocusModel>(
      config, focus::FocusShape::of(model.decoder->config()), rng));

  const focus::Texts text = {.files = {argv[2]}};
  for (const std::string word : {"dense", "hard:1", "summary:2"}) {
    const focus::Row row = focus::evaluate(model, word, text, {.context = 128});
    fmt::print("{:<10} perplexity {:.3f}, {:.0f}% of the pairs\n", word, row.perplexity,
               100 * row.pairs_attended);
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
