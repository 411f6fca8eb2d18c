#include <cstring>

#include "apps/command.h"
#include "focus/train/rival_spec.h"
#include "autograd/check.h"

namespace focus {
namespace {

/// The first position before `cut` at which two runs' logits differ in a bit; nullopt where none.
std::optional<Index> first_difference(const Tensor& before, const Tensor& after, Index cut) {
  const auto vocab = static_cast<std::size_t>(before.cols());
  for (Index t = 0; t < cut; ++t)
    if (std::memcmp(before.data() + t * before.cols(), after.data() + t * before.cols(),
                    vocab * sizeof(Real)) != 0)
      return t;
  return std::nullopt;
}

}  // namespace

int run_leak_test(Arguments arguments) {
  std::string base, adapter, json, routing = "auto";
  Index context = 0;
  std::vector<std::string> attention;
  std::int64_t seed = 1, cuts = 4;
  Compute compute = Compute::float32;
  int threads = 0;
  CLI::App app(
      "Changes later tokens, keeps the length, and demands bit-identical logits before them: "
      "dense, soft and hard k=1..K, the rival that the model was trained with, and those that "
      "--attention names. Exit status 1 where a mode leaks.",
      "focus leak-test");
  app.add_option("base", base, "the model: a store or a Hugging Face folder")->required();
  app.add_option("--adapter", adapter, "the adapter (focus.h5, lora.h5) or a PEFT folder");
  app.add_option("--context", context,
                 "tokens of the sequence (default: 512, or the model's positions if fewer)");
  app.add_option("--cuts", cuts, "places from which all later tokens are changed")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "of the random tokens");
  app.add_option("--routing", routing,
                 "carried, sequence, none; auto: what the adapter was trained with")
      ->check(CLI::IsMember({"auto", "carried", "sequence", "none"}));
  app.add_option("--attention", attention,
                 "also these rivals, as focus eval takes them: window:128")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_compute_option(app, compute);
  app.add_option("--threads", threads, "threads");
  app.add_option("--json", json, "write the figures to this file too");
  parse_arguments(app, arguments);

  set_threads(threads);
  LoadedModel model = load_model(base, "", compute);
  if (!adapter.empty()) load_adapter(adapter, model);
  const ModelConfig& config = model.decoder->config();
  if (context == 0) context = std::min<Index>(512, config.max_position_embeddings);
  check(context >= 2 && context <= config.max_position_embeddings,
        "--context must be from 2 to the {} positions of {}, not {}",
        config.max_position_embeddings, base, context);

  std::vector<AttentionMode> modes = {{.kind = AttentionMode::Kind::dense}};
  if (model.focus) {
    Balance balance = model.focus->config().balance;
    for (std::size_t i = 0; i < enum_names(balance).size(); ++i)
      if (enum_names(balance)[i] == routing) balance = static_cast<Balance>(i);
    modes.push_back({.kind = AttentionMode::Kind::soft, .balance = balance});
    for (int k = 1; k <= model.focus->config().num_groups; ++k)
      modes.push_back({.kind = AttentionMode::Kind::hard,
                       .top_k = k,
                       .balance = balance,
                       .hard_gate = model.focus->config().hard_gate});
  }

  std::vector<std::unique_ptr<RivalModel>> rivals;
  if (model.rival) rivals.push_back(std::move(model.rival));
  if (!rivals.empty()) clear_mechanisms(*model.decoder);
  for (const std::string& word : attention)
    rivals.push_back(std::make_unique<RivalModel>(parse_rival(word, "--attention"), config));

  const NoGrad guard;
  Rng rng(static_cast<std::uint64_t>(seed));
  const auto random_id = [&] {
    return static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(config.vocab_size)));
  };
  std::vector<std::int32_t> ids(static_cast<std::size_t>(context));
  for (auto& id : ids) id = random_id();
  const auto logits = [&](const std::vector<std::int32_t>& tokens) {
    return model.decoder->logits(model.decoder->hidden_states(tokens, 1)).value();
  };
  bool leaks = false;
  auto results = nlohmann::ordered_json::array();
  const auto test = [&](const std::string& name) {
    const Tensor before = logits(ids);
    std::optional<Index> leak;
    Index cut = 0;
    for (std::int64_t c = 1; c <= cuts && !leak; ++c) {
      cut = std::clamp<Index>(context * c / (cuts + 1), 1, context - 1);
      std::vector<std::int32_t> changed = ids;
      for (Index t = cut; t < context; ++t) {
        auto& id = changed[static_cast<std::size_t>(t)];
        id = static_cast<std::int32_t>(
            (id + 1 +
             random_id() %
                 std::max<std::int32_t>(1, static_cast<std::int32_t>(config.vocab_size) - 1)) %
            config.vocab_size);
      }
      leak = first_difference(before, logits(changed), cut);
    }
    if (leak)
      fmt::print(
          "{:<32} LEAKS: tokens from {} on were changed, logits differ first at position {}\n",
          name, cut, *leak);
    else
      fmt::print("{:<32} no leak: logits before {} changed places are bit-identical\n", name, cuts);
    leaks = leaks || leak.has_value();
    results.push_back(
        {{"mode", name},
         {"leaks", leak.has_value()},
         {"first_difference", leak ? nlohmann::ordered_json(*leak) : nlohmann::ordered_json()}});
  };
  for (const AttentionMode& mode : modes) {
    if (model.focus) model.focus->mode = mode;
    const std::string routing_name = EvalRow{.mode = mode}.routing();
    test(routing_name == "-" ? mode.name() : mode.name() + ", " + routing_name);
  }
  for (const auto& rival : rivals) {
    rival->compose(*model.decoder);
    test(rival->causal() ? rival->name() : rival->name() + ", not causal");
  }
  write_json(json, {{"model", base},
                    {"adapter", adapter},
                    {"context", context},
                    {"compute", name_of(compute)},
                    {"leaks", leaks},
                    {"modes", results}});
  return leaks ? 1 : 0;
}

}  // namespace focus
