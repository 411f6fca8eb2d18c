#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "focus/train/rival_spec.h"
#include "autograd/check.h"

namespace focus {
namespace {

constexpr AttentionMode kLocalOnly = {.kind = AttentionMode::Kind::hard, .top_k = 0};

/// dense, soft and hard k=1..K, under the routings and hard gates that were asked for.
std::vector<AttentionMode> modes_for(const FocusModel* focus, const std::string& routing,
                                     const std::string& hard_gate, bool local_only) {
  std::vector<AttentionMode> modes = {{.kind = AttentionMode::Kind::dense}};
  if (focus == nullptr) return modes;
  if (local_only) modes.push_back(kLocalOnly);
  std::vector<Balance> balances;
  const Balance trained = focus->config().balance;
  if (routing == "auto") {
    balances = {trained == Balance::none ? Balance::none : Balance::carried};
    if (trained == Balance::sequence) balances.push_back(Balance::sequence);
  } else if (routing == "both") {
    balances = {Balance::carried, Balance::sequence};
  } else {
    balances = {routing == "carried"    ? Balance::carried
                : routing == "sequence" ? Balance::sequence
                                        : Balance::none};
  }
  std::vector<HardGate> gates;
  if (hard_gate == "auto") gates = {focus->config().hard_gate};
  if (hard_gate == "drop" || hard_gate == "both") gates.push_back(HardGate::drop);
  if (hard_gate == "keep" || hard_gate == "both") gates.push_back(HardGate::keep);
  for (const Balance balance : balances) {
    modes.push_back({.kind = AttentionMode::Kind::soft, .balance = balance});
    for (const HardGate gate : gates)
      for (int k = 1; k <= focus->config().num_groups; ++k)
        modes.push_back(
            {.kind = AttentionMode::Kind::hard, .top_k = k, .balance = balance, .hard_gate = gate});
  }
  return modes;
}

/// A row to come: a mode of the model and its Focus, or a rival attention.
struct Row {
  AttentionMode mode = {.kind = AttentionMode::Kind::dense};
  RivalModel* rival = nullptr;
};

/// What --attention lists, in its order; `rivals` receives those that the words make. Without a
/// list: the modes, and the rival that the model was trained with. `max_top_k`, if not 0, cuts the
/// hard modes that no word names.
std::vector<Row> rows_for(const std::vector<std::string>& words, const LoadedModel& model,
                          const std::vector<AttentionMode>& modes, int max_top_k,
                          std::vector<std::unique_ptr<RivalModel>>& rivals) {
  using Kind = AttentionMode::Kind;
  std::vector<Row> rows;
  const auto add_modes = [&](auto&& wanted) {
    for (const AttentionMode& mode : modes)
      if (wanted(mode)) rows.push_back({.mode = mode});
  };
  const auto is_within = [&](const AttentionMode& mode) {
    return mode.kind != Kind::hard || max_top_k == 0 || mode.top_k <= max_top_k;
  };
  if (words.empty()) {
    add_modes(is_within);
    if (model.rival) rows.push_back({.rival = model.rival.get()});
  }
  for (const std::string& word : words) {
    const auto needs_focus = [&] {
      if (!model.focus)
        fail("--attention {}: {} has no Focus; name one with --adapter", word, model.where);
    };
    std::visit(
        [&]<class Word>(const Word& parsed) {
          if constexpr (std::is_same_v<Word, DenseWord>) {
            rows.push_back({});
          } else if constexpr (std::is_same_v<Word, LocalWord>) {
            needs_focus();
            rows.push_back({.mode = kLocalOnly});
          } else if constexpr (std::is_same_v<Word, SoftWord>) {
            needs_focus();
            add_modes([](const AttentionMode& mode) { return mode.kind == Kind::soft; });
          } else if constexpr (std::is_same_v<Word, HardWord>) {
            needs_focus();
            const auto before = rows.size();
            add_modes([&](const AttentionMode& mode) {
              return mode.kind == Kind::hard && mode.top_k == parsed.top_k;
            });
            if (rows.size() == before)
              fail("--attention {}: the Focus has {} groups; wanted no more", word,
                   model.focus->config().num_groups);
          } else if constexpr (std::is_same_v<Word, FocusWord>) {
            needs_focus();
            add_modes([&](const AttentionMode& mode) {
              return mode.kind != Kind::dense && is_within(mode);
            });
          } else if constexpr (std::is_same_v<Word, TrainedWord>) {
            if (!model.rival)
              fail("--attention trained: {} was not trained with a rival attention", model.where);
            rows.push_back({.rival = model.rival.get()});
          } else {
            rivals.push_back(std::make_unique<RivalModel>(parsed, model.decoder->config()));
            rows.push_back({.rival = rivals.back().get()});
          }
        },
        parse_attention(word, "--attention"));
  }
  return rows;
}

}  // namespace

int run_eval(Arguments arguments) {
  std::string base, adapter, tokenizer, json, routing = "auto", hard_gate = "auto";
  std::vector<std::string> paths, attention;
  TextOptions documents;
  EvalOptions options{.context = 0, .stride = 0};
  Compute compute = Compute::float32;
  int threads = 0, max_top_k = 0;
  bool local_only = false, with_speed = false;
  CLI::App app(
      "Perplexity of texts by the strided recipe of transformers' documentation, for dense, soft "
      "and hard k=1..K attention, and the rivals that --attention names, on the same windows.",
      "focus eval");
  app.add_option("base", base, "the model: a store or a Hugging Face folder")->required();
  app.add_option("--adapter", adapter, "the adapter (focus.h5, lora.h5) or a PEFT folder");
  app.add_option("--text", paths, "text files (.txt, .xz) or folders, one stream of tokens each")
      ->required();
  app.add_option("--tokenizer", tokenizer, "instead of the model's own");
  app.add_option("--context", options.context,
                 "tokens of a window (default: 512, or the model's positions if fewer)");
  app.add_option("--stride", options.stride,
                 "tokens from one window to the next (default: half the context)");
  app.add_option("--separator", documents.separator,
                 "what stands between the documents of a file, such as <|endoftext|>: each is then "
                 "scored alone, without the white space around it");
  app.add_option("--max-documents", documents.most, "only the first documents; 0: all");
  app.add_option("--max-tokens", documents.max_tokens,
                 "only the first tokens of each document, the one before it included; 0: all");
  app.add_option(
         "--routing", routing,
         "carried, sequence (not causal), none, both; auto: carried, and what was trained with")
      ->check(CLI::IsMember({"auto", "carried", "sequence", "none", "both"}));
  app.add_option("--hard-gate", hard_gate,
                 "drop or keep the affinity on attended pairs, both; auto: as configured")
      ->check(CLI::IsMember({"auto", "drop", "keep", "both"}));
  app.add_option("--max-top-k", max_top_k, "largest k of hard attention (default: all groups)");
  app.add_option(
         "--attention", attention,
         "only these rows, in this order: dense; local (the local window alone); soft; hard:2 "
         "(the k best groups, here 2); focus (soft and every hard); trained (the rival that "
         "the model was trained with); or a rival put onto the model as it is: "
         "window:128, performer:256, routing:8, sparq:32, magicpig:8, with more settings "
         "as :KEY=VALUE, such as sparq:32:rank=16:reallocate=false")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_flag("--local-only", local_only, "also the local window alone, as a control");
  add_compute_option(app, compute);
  app.add_option("--threads", threads, "threads");
  app.add_option("--json", json, "write the figures to this file too");
  app.add_flag("--json-speed", with_speed,
               "put tokens_per_second into the JSON, which without it is the same every time");
  parse_arguments(app, arguments);

  set_threads(threads);
  LoadedModel model = load_model(base, tokenizer, compute);
  if (!adapter.empty()) load_adapter(adapter, model);
  const Index positions = model.decoder->config().max_position_embeddings;
  options.fill_in(positions);
  if (options.context > positions)
    fail("--context {} is longer than the {} positions of {}", options.context, positions, base);
  const std::vector<EvalText> texts = read_texts(model, paths, documents);

  std::vector<EvalRow> rows;
  std::vector<std::unique_ptr<RivalModel>> rivals;
  const auto todo =
      rows_for(attention, model, modes_for(model.focus.get(), routing, hard_gate, local_only),
               max_top_k, rivals);
  if (model.rival) clear_mechanisms(*model.decoder);
  for (const auto& [mode, rival] : todo) {
    Progress progress({.label = "eval " + (rival ? rival->name() : mode.name()),
                       .total_steps = 1000,
                       .line_every = 1 << 30});
    const auto report = [&](double share) {
      progress.update(static_cast<std::int64_t>(share * 1000), NAN, 0);
    };
    rows.push_back(
        rival ? evaluate_rival(*model.decoder, *rival, texts, options, report)
              : evaluate_mode(*model.decoder, model.focus.get(), mode, texts, options, report));
  }

  std::int64_t bytes = 0;
  nlohmann::ordered_json names = nlohmann::ordered_json::array();
  for (const EvalText& text : texts) {
    bytes += text.bytes;
    if (names.empty() || names.back() != text.name) names.push_back(text.name);
  }
  const Tokenizer& own = model.require_tokenizer();
  fmt::print("{} text{}, {} bytes, tokenizer {} {}, context {}, stride {}\n\n", texts.size(),
             texts.size() == 1 ? "" : "s", bytes, own.kind(), own.fingerprint(), options.context,
             options.stride);
  fmt::print("{}", format_rows(rows));
  if (model.focus)
    fmt::print(
        "\ntok/s: tokens scored in a second; pairs: share of the causal pairs that are attended; "
        "largest: the largest group's share (balance is {:.1f}%), mean over layers\n",
        100.0 / model.focus->config().num_groups);
  write_json(json, {{"model", base},
                    {"adapter", adapter},
                    {"texts", names},
                    {"documents", texts.size()},
                    {"bytes", bytes},
                    {"tokenizer", {{"kind", own.kind()}, {"fingerprint", own.fingerprint()}}},
                    {"context", options.context},
                    {"stride", options.stride},
                    {"compute", name_of(compute)},
                    {"num_groups", model.focus ? model.focus->config().num_groups : 0},
                    {"rows", rows_to_json(rows, with_speed)}});
  return 0;
}

}  // namespace focus
