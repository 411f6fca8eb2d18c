// method two_phase: centroids on the frozen base, then everything.
#include <cmath>

#include "data/settings/config.h"
#include "data/tokens/tokenize.h"
#include "focus/method/focus_files.h"
#include "focus/training/training.h"
#include "tests/support/cli.h"
#include "tests/support/tiny_focus.h"

namespace focus {
namespace {

constexpr std::int64_t kSteps = 9, kFirst = 5;

/// What both phases share.
Words common(const std::string& out) {
  return cli().retrofit({"out=" + out, "focus.tokens.sequence_steps=3", "optim.weight_decay=0.1"});
}
Words two_phase(const std::string& out, const Words& more = {}) {
  return common(out) +
         "method=two_phase steps=9 two_phase.phase1_steps=5 two_phase.lr=0.003 "
         "two_phase.warmup_steps=2" +
         more;
}
RunConfig config_of_run(const Words& command) {
  RunConfig config;
  read_config("", {command.begin() + 1, command.end()}, config);
  config.data.cache_dir = cli().fresh("cache");
  return config;
}

TEST(CliTwoPhase, TheFirstPhaseEndsAsARetrofitOfItsSteps) {
  const std::string out = cli().fresh("run"), retrofit = cli().fresh("retrofit");
  cli().must_run(two_phase(out, {"--stop-at", fmt::format("{}", kFirst)}));
  cli().must_run(common(retrofit) + Words{fmt::format("steps={}", kFirst)});
  const std::string name = fmt::format("/checkpoints/step_{:06}.h5", kFirst);
  expect_same_store(out + name, retrofit + name);
  auto records = metrics_of(out), wanted = metrics_of(retrofit);
  wanted.pop_back();  // the validation at the retrofit's end
  for (auto& record : records) {
    if (record.contains("loss")) {
      EXPECT_EQ(record.at("phase"), 1) << record;
    }
    record.erase("phase");
  }
  EXPECT_EQ(records, wanted);
}

TEST(CliTwoPhase, TheSecondPhaseIsFullTrainingFromThatAdapter) {
  const std::string out = cli().fresh("run"), retrofit = cli().fresh("retrofit");
  cli().must_run(two_phase(out));
  cli().must_run(common(retrofit) + Words{fmt::format("steps={}", kFirst)});

  const RunConfig config = config_of_run(two_phase(out));
  LoadedModel model = load_model(config.base, "", Precision::float32, WeightUse::trainable);
  model.attach(
      read_focus(open_focus(fs::path(retrofit + "/focus.h5")), model.fingerprint(), "base"));
  FocusModel& focus = *model.focus();
  NamedParameters parameters;
  const auto add = [&](const std::string& name, Variable& p) {
    p.set_requires_grad(true);
    parameters.push_back({name, p});
  };
  for_each_parameter(*model.decoder, add);
  focus.visit_parameters(add);
  OptimConfig optim = config.optim;
  optim.lr = 0.003;
  optim.warmup_steps = 2;
  AdamW adamw(parameters, optim);
  const TokenFile tokens =
      tokenize_cached(std::vector<fs::path>{cli().train_text()}, *model.tokenizer,
                      {.ends = model.text_ends(), .cache_dir = config.data.cache_dir});
  Batches batches(TokenView(tokens), {.batch = config.data.batch,
                                      .context = config.data.context,
                                      .seed = static_cast<std::uint64_t>(config.seed)});
  for (std::int64_t step = 0; step < kFirst; ++step) batches.next();
  std::vector<double> losses;
  focus.mode = {.kind = AttentionKind::soft, .balance = Balance::carried};
  for (std::int64_t step = 0; step < kSteps - kFirst; ++step)
    losses.push_back(training_step(adamw, {optim, 0, kSteps - kFirst}, step, 1, [&](int) {
                       const Batch batch = batches.next();
                       Variable loss = model.decoder->loss(batch.ids, batch.batch);
                       carry_potentials(focus);
                       return loss;
                     }).loss);

  std::vector<double> logged, rates;
  for (const auto& record : metrics_of(out))
    if (record.value("phase", 0) == 2) {
      logged.push_back(record.at("loss"));
      rates.push_back(record.at("lr"));
    }
  EXPECT_EQ(logged, losses);
  EXPECT_EQ(rates.front(), 0.0015) << "a warm-up of its own";
  EXPECT_LT(rates.back(), 0.001) << "and a decay";
  LoadedModel trained = load_model(out + "/model.h5", "", Precision::float32, WeightUse::trainable);
  std::vector<Tensor> wanted;
  const auto note = [&](const std::string&, Variable& p) { wanted.push_back(p.value()); };
  std::size_t i = 0;
  const auto expect_same = [&](const std::string& name, Variable& p) {
    EXPECT_TRUE(same_bits(p.value(), wanted.at(i++))) << name;
  };
  for_each_parameter(*model.decoder, note);
  focus.visit_parameters(note);
  for_each_parameter(*trained.decoder, expect_same);
  ASSERT_TRUE(trained.focus());
  trained.focus()->visit_parameters(expect_same);
  EXPECT_EQ(i, wanted.size());
}

TEST(CliTwoPhase, WritesOneModelThatKnowsItsFocus) {
  const std::string out = cli().fresh("run");
  cli().must_run(two_phase(out));
  EXPECT_TRUE(fs::exists(out + "/model.h5"));
  EXPECT_FALSE(fs::exists(out + "/focus.h5"));
  const auto rows = cli().rows(words("{}/model.h5 --text {valid} --context 64", out));
  EXPECT_TRUE(std::ranges::any_of(rows, [](auto& row) { return row.at("attention") == "soft"; }));
  cli().must_run({"leak-test", out + "/model.h5"});
  EXPECT_EQ(cli().figures(two_phase(out, "--resume")).at("finished"), true);
}

TEST(CliTwoPhase, ResumeWithAnotherBoundaryIsRefused) {
  const std::string out = cli().fresh("run");
  cli().must_run(two_phase(out, {"--stop-at", "3"}));
  expect_refused(two_phase(out, {"two_phase.phase1_steps=4", "--resume"}),
                 {"two_phase.phase1_steps: 5 before, 4 now", "--overwrite"});
}

TEST(CliTwoPhase, DryRunSaysBothPhases) {
  const std::string out = cli().fresh("dry");
  const ProcessResult result = cli().must_run(two_phase(out, {"--dry-run"}));
  expect_parts(result.out, {"phase 1, steps 1 to 5", "phase 2, steps 6 to 9"});
  const auto figures = cli().figures(two_phase(out, {"--dry-run"}));
  EXPECT_FALSE(fs::exists(out));
  const std::int64_t base = cli().figures({"info", cli().base()}).at("parameters");
  const auto& phases = figures.at("phases");
  ASSERT_EQ(phases.size(), 2u);
  EXPECT_EQ(phases[0].at("trainable"), 560);
  EXPECT_EQ(phases[0].at("frozen"), base);
  EXPECT_EQ(phases[1].at("trainable"), base + 560);
  EXPECT_EQ(phases[1].at("frozen"), 0);
  EXPECT_EQ(figures.at("trainable"), base + 560);
  EXPECT_GT(phases[1].at("optimiser_bytes"), phases[0].at("optimiser_bytes"));
}

TEST(CliTwoPhase, WhatDoesNotFitIsRefused) {
  const std::string out = cli().fresh("run");
  for (const auto& [keys, parts] : std::vector<std::pair<Words, std::vector<std::string>>>{
           {"two_phase.phase1_steps=9", {"two_phase.phase1_steps is 9"}},
           {"two_phase.lr=0", {"two_phase.lr"}},
           {"precision=q8", {"q8", "two_phase"}},
           {"attention=window", {"window", "two_phase"}}})
    expect_refused(two_phase(out, keys), parts);
  expect_refused("speed --step method=two_phase", {"two_phase", "retrofit"});
  EXPECT_FALSE(fs::exists(out));
}

// `focus train` with method lora, what it writes for us and for PEFT, and `focus merge`.

/// A finished run's folder.
std::string trained_lora() {
  const std::string out = cli().fresh("lora");
  cli().must_run(
      cli().retrofit(words("method=lora lora.r=2 lora.dropout=0.1 optim.lr=0.02 out={}", out)));
  return out;
}

TEST(CliLora, StoreAndPeftFolderScoreTheSameAndBetterThanTheBase) {
  const std::string out = trained_lora();
  const StoreReader store(out + "/lora.h5");
  EXPECT_EQ(store.kind(), "adapter");
  EXPECT_FALSE(store.has("/model"));
  const Words eval = "{base} --text {train} --context 64";
  const double adapted = cli().perplexity(eval + words("--adapter {}/lora.h5", out));
  EXPECT_LT(adapted, cli().perplexity(eval));
  EXPECT_EQ(cli().perplexity(eval + Words{"--adapter", out}), adapted);
}

TEST(CliLora, MergedModelScoresAsTheAdapterDid) {
  const std::string merged = cli().fresh("merged.h5");
  const Words text = "--text {valid} --context 64";
  const auto figures =
      cli().figures(words("merge {base} --adapter {} --out {}", trained_lora(), merged));
  const double adapter = cli().perplexity(words("{base} --adapter {}", trained_lora()) + text);
  EXPECT_NEAR(cli().perplexity(Words{merged} + text), adapter, 1e-4 * adapter);
  EXPECT_LT(figures.at("logit_difference").get<double>(), 1e-3);
}

TEST(CliLora, ARunStartsWhereAnotherEnded) {
  for (const std::string& keys : {std::string("method=lora lora.r=2"), std::string("seed=3")}) {
    const std::string first = cli().fresh("first"), second = cli().fresh("second");
    cli().must_run(cli().retrofit(words(keys + " out={}", first)));
    cli().must_run(cli().retrofit(words(keys + " out={} init_adapter={} steps=2", second, first)));
    EXPECT_EQ(metrics_of(second).front().at("valid_loss"),
              metrics_of(first).back().at("valid_loss"));
    EXPECT_NE(metrics_of(second).back().at("valid_loss"),
              metrics_of(first).back().at("valid_loss"));
    // From PEFT's files, or the exchange form.
    const std::string form = cli().fresh("form"), third = cli().fresh("third");
    if (fs::exists(first + "/lora.h5")) {
      fs::create_directory(form);
      for (const std::string name : {"/adapter_config.json", "/adapter_model.safetensors"})
        fs::copy_file(first + name, form + name);
    } else {
      cli().must_run(words("export {}/focus.h5 --out {}", first, form));
    }
    cli().must_run(cli().retrofit(words(keys + " out={} init_adapter={} steps=2", third, form)));
    EXPECT_EQ(metrics_of(third), metrics_of(second));
  }
}

TEST(CliLora, AnAdapterThatARunCannotStartFromIsRefused) {
  const auto refused = [](const Words& keys, const std::vector<std::string>& parts) {
    expect_refused(cli().retrofit(keys + words("out={}", cli().fresh("refused"))), parts);
  };
  const Words lora = "method=lora init_adapter={lora}";
  refused(lora, {cli().lora(), "rank 2", "this run 8", "set lora.r=2"});
  refused(lora + "lora.r=2 lora.alpha=32", {"adds 8 B A, but this run 16", "lora.alpha=16"});
  refused(lora + "lora.r=2 lora.target_modules=[q_proj]", {cli().lora(), "does not belong"});
  refused("init_adapter={lora}", {cli().lora(), "holds LoRA, which this run does not train"});
  refused("init_adapter={adapter} focus.num_groups=5",
          {cli().adapter(), "focus.num_groups 3, but this run 5", "set focus.num_groups=3"});
  refused("init_adapter={adapter} focus.tokens.routing_dim=4", {"set focus.tokens.routing_dim=8"});
  refused("init_adapter={keys}", {cli().keys(), "set focus.grouping=keys"});
  refused("init_adapter=nowhere", {"nowhere: no such file or folder; an adapter is"});
  refused("base={other} init_adapter={adapter}", {"use the base it was trained on"});
  expect_refused(cli().scratch("attention=focus init_adapter={adapter}"),
                 {"init_adapter", "scratch"});
}

TEST(CliLora, RefusalsNameWhatIsWrongAndWriteNothing) {
  const std::string out = cli().fresh("refused"), folder = trained_lora();
  const auto refused = [&](const Words& command, const std::string& part) {
    const ProcessResult result = cli().run(command);
    EXPECT_NE(result.status, 0);
    EXPECT_FALSE(fs::exists(out));
    expect_parts(result.err, {part});
  };
  refused(cli().retrofit({"method=lora", "lora.target_modules=[c_attn]", "out=" + out}),
          "named 'c_attn'; it has");
  refused(cli().retrofit({"method=lora", "attention=focus", "focus.lm_weight=1", "out=" + out}),
          "focus.lm_weight is 1, but focus.objective lm");
  refused(words("merge {base} --adapter {adapter} --out {}", out), "is not a LoRA adapter");
  refused(words("merge {other} --adapter {}/lora.h5 --out {}", folder, out),
          "use the base it was trained on");
  const std::string half = cli().fresh("half");
  fs::create_directory(half);
  fs::copy_file(folder + "/adapter_config.json", half + "/adapter_config.json");
  refused(words("merge {base} --adapter {} --out {}", half, out), "not a PEFT adapter");
}

// Models with the baselines' attention: trained, stored, resumed, evaluated, refused.

nlohmann::json baseline_rows(const Words& more) { return cli().rows(more + "--text {valid}"); }

const std::map<std::string, std::string> kTrained = {
    {"window", "window:11"},
    {"performer", "performer:16"},
    {"routing_transformer", "routing_transformer:3:local_window=4"},
    {"sink_window", "sink_window:9"}};

TEST(CliRivals, TrainStoreAndUseWhatWasTrained) {
  for (const auto& [name, attention] : kTrained) {
    SCOPED_TRACE(name);
    const std::string out = cli().fresh(name);
    const auto trained =
        cli().figures(cli().scratch({"attention=" + attention, "out=" + out, "steps=20"}));
    EXPECT_LT(trained.at("valid_loss"), trained.at("valid_loss_start").get<double>() - 0.3);

    const std::string model = out + "/model.h5";
    EXPECT_EQ(cli().figures({"info", model}).at("attention"), name);
    EXPECT_EQ(StoreReader(model).has("/attention/layer_000/constants"), !name.ends_with("window"));
    const auto rows = baseline_rows({model, "--context", "64"});
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].at("attention"), "dense");
    EXPECT_TRUE(rows[1].at("attention").get<std::string>().starts_with(name.substr(0, 6)));
    EXPECT_TRUE(rows[1].at("causal").get<bool>());
    EXPECT_NE(rows[0].at("perplexity"), rows[1].at("perplexity"));
    if (name == "performer")
      EXPECT_EQ(rows[1].at("pairs_attended"), 1.0);
    else
      EXPECT_LT(rows[1].at("pairs_attended"), 0.9);
    EXPECT_EQ(baseline_rows({model, "--context", "64", "--attention", "trained"})[0], rows[1]);

    const Words prompt = words("generate {} --prompt Once --max-new-tokens 12", model);
    const auto own = cli().figures(prompt);
    EXPECT_EQ(own.at("attention"), rows[1].at("attention"));
    EXPECT_EQ(own.at("new_tokens"), 12);
    EXPECT_EQ(cli().figures(prompt + Words{"--attention", "dense"}).at("attention"), "dense");
    expect_refused(prompt + Words{"--attention", "hard"}, {model, "has no Focus"});
    EXPECT_EQ(cli().run({"leak-test", model, "--context", "64"}).status, 0);
  }
}

struct Rival {
  std::string spec, name;
  std::optional<bool> exact = false;  // as dense attention, with all pairs
  bool causal = true;
};
const std::vector<Rival> kRivals = {
    {"dense", "dense", true},
    {"window:63", "window w=63", true},
    {"window:7", "window w=7"},
    {"performer:64", "performer m=64", std::nullopt},
    {"routing:1:shared_qk=false", "routing 1", true},
    {"routing:3:choice=balanced:local_window=2", "routing 3 shared balanced", false, false},
    {"sparq:64:rank=64", "sparq k=64 r=64 mean", true},
    {"sparq:4:rank=2", "sparq k=4 r=2 mean"},
    {"sparq:4:rank=2:reallocate=false", "sparq k=4 r=2"},
    {"magicpig:0", "magicpig K=0 L=75", true},
    {"magicpig:4:tables=8:local_window=1", "magicpig K=4 L=8"},
    {"sink_window:3:sinks=64", "sink_window w=3 s=64", true},
    {"quest:64:page_size=4", "quest p=64x4 w=32", true},
    {"moba:9:block_size=8", "moba b=9x8", true},
    {"oracle:64", "oracle k=64 w=32", true},
    {"random_groups:1", "random_groups 1 w=32", true},
    {"sink_window:5:sinks=1", "sink_window w=5 s=1"},
    {"quest:1:page_size=4:local_window=3", "quest p=1x4 w=3"},
    {"moba:1:block_size=8", "moba b=1x8"},
    {"oracle:3:heads=shared:local_window=3", "oracle k=3 w=3 shared"},
    {"random_groups:4:local_window=3", "random_groups 4 w=3"}};

TEST(CliRivals, RowsOfABaseAsItIs) {
  std::string all;
  for (const Rival& rival : kRivals) all += (all.empty() ? "" : ",") + rival.spec;
  const auto rows = baseline_rows(words("{base} --context 64 --attention {}", all));
  ASSERT_EQ(rows.size(), kRivals.size());
  const double dense = rows[0].at("perplexity");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Rival& rival = kRivals[i];
    const double perplexity = rows[i].at("perplexity");
    EXPECT_EQ(rows[i].at("attention"), rival.name);
    EXPECT_EQ(rows[i].at("causal").get<bool>(), rival.causal) << rival.name;
    EXPECT_TRUE(std::isfinite(perplexity)) << rival.name;
    if (!rival.exact) continue;
    if (*rival.exact) {
      EXPECT_NEAR(perplexity, dense, 1e-4 * dense) << rival.name;
      EXPECT_EQ(rows[i].at("pairs_attended"), 1.0) << rival.name;
    } else {
      EXPECT_NE(perplexity, dense) << rival.name;
      EXPECT_LT(rows[i].at("pairs_attended"), 0.9) << rival.name;
    }
  }
  EXPECT_EQ(rows[8].at("settings"),
            (nlohmann::json{
                {"tokens", "4"}, {"rank", "2"}, {"last_keys", "0"}, {"reallocate", "false"}}));
  EXPECT_TRUE(rows[0].at("settings").is_null());
}

TEST(CliRivals, AnIndexerIsTrainedOnAFrozenBaseAndStored) {
  const std::string out = cli().fresh("indexer"), trained = out + "/indexer.h5";
  cli().must_run(cli().retrofit({"attention=indexer:6:local_window=3:heads=2", "out=" + out}));
  const StoreReader a(trained);
  EXPECT_FALSE(a.has("/model"));
  EXPECT_FALSE(a.has("/focus"));
  EXPECT_EQ(cli().figures({"info", trained}).at("attention"), "indexer");
  EXPECT_TRUE(a.has("/attention/parameters/indexer/layers/0/q"));

  const Words eval = words("{base} --adapter {} --context 64", trained);
  const auto rows = baseline_rows(eval);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("attention"), "dense");
  EXPECT_EQ(rows[1].at("attention"), "indexer k=6 w=3");
  EXPECT_LT(rows[1].at("pairs_attended"), 0.6);
  const auto more = baseline_rows(
      eval + "--attention indexer:64:heads=2,indexer:6:heads=2:local_window=3,oracle:6,dense");
  ASSERT_EQ(more.size(), 4u);
  EXPECT_EQ(more[0].at("pairs_attended"), 1.0);
  EXPECT_EQ(more[1].at("perplexity"), rows[1].at("perplexity"));
  EXPECT_EQ(more[3], rows[0]);

  expect_refused(Words("eval --text {valid} --attention indexer:8:heads=3") + eval,
                 {"indexer", "settings that it was trained with"});
  expect_refused("eval {base} --text {valid} --attention indexer:8", {"indexer", "--adapter"});
  expect_refused(cli().scratch({"attention=indexer", "out=" + cli().fresh("refused")}),
                 {"indexer", "retrofit"});
}

TEST(CliRivals, TheTableAndTheLeakTestSayWhatIsNotCausal) {
  const std::string balanced = "routing:3:choice=balanced:local_window=2";
  expect_parts(cli().must_run(words("eval {base} --text {valid} --attention {}", balanced)).out,
               {"routing 3 shared balanced  not causal"});
  const Words leak = "leak-test {base} --context 64 --attention";
  const ProcessResult sound =
      cli().must_run(leak +
                     "window:7,performer:16,routing:3,sparq:4,magicpig:4:tables=8:local_window=1,"
                     "sink_window:7,quest:1:page_size=4:local_window=3,moba:1:block_size=8,"
                     "oracle:3:local_window=3,random_groups:4:local_window=3");
  EXPECT_FALSE(contains(sound.out, "LEAKS")) << sound.out;
  const ProcessResult leaks = cli().run(leak + Words{balanced});
  EXPECT_EQ(leaks.status, 1);
  expect_parts(leaks.out, {"routing 3 shared balanced, not causal", "LEAKS"});
}

TEST(CliRivals, RowsOfFocusByName) {
  const auto rows_of = [](const std::string& attention) {
    return baseline_rows(
        words("{base} --adapter {adapter} --context 64 --attention {}", attention));
  };
  const auto all = rows_of("dense,local,focus");  // dense, local, soft, k = 1, 2, 3
  const auto rows = rows_of("hard:3,soft,sparq:8,hard:1,local,dense,window:7,focus");
  ASSERT_EQ(rows.size(), 8u);  // what is there already is no row of its own
  EXPECT_EQ(rows[0], all[5]);
  EXPECT_EQ(rows[1], all[2]);
  EXPECT_EQ(rows[2].at("attention"), "sparq k=8 r=32 mean");
  EXPECT_EQ(rows[3], all[3]);
  EXPECT_EQ(rows[4], all[1]);
  EXPECT_EQ(rows[5], all[0]);
  EXPECT_EQ(rows[6].at("attention"), "window w=7");
  EXPECT_EQ(rows[7], all[4]);
  EXPECT_EQ(rows_of("hard:2:gate=keep,hard:2:gate=drop").size(), 2u);
  const Words refused = "eval {base} --adapter {adapter} --text {valid} --attention";
  expect_refused(refused + "hard:4", {"hard:4", "3 groups"});
  for (const char* word : {"hard:", "hard:0", "hard:two", "hard:1x"})
    expect_refused(refused + word, {word, "k: expected"});
}

TEST(CliRivals, WhatDoesNotFitIsRefusedByName) {
  const Words eval = "eval {base} --text {valid} --attention";
  expect_refused(eval + "longformer:8", {"longformer", "window, performer"});
  expect_refused(eval + "window:none", {"window:none", "window"});
  expect_refused(eval + "sparq:8:tokns=3", {"tokns", "did you mean tokens?"});
  expect_refused(eval + "sparq:8:16", {"sparq:8:16", "KEY=VALUE"});
  for (const char* word : {"focus", "soft", "hard:1", "local"})
    expect_refused(eval + word, {"has no Focus", "--adapter"});
  expect_refused(eval + "trained", {"was trained with dense or Focus attention only"});
  const std::string out = cli().fresh("refused");
  expect_refused(cli().retrofit({"attention=performer", "out=" + out}),
                 {"performer", "frozen base", "focus eval"});
  expect_refused(cli().scratch({"attention=performer", "out=" + out, "model.model_type=mistral",
                                "model.sliding_window=8"}),
                 {"performer", "mistral", "sliding window of 8"});
  expect_refused(
      cli().scratch({"attention=routing_transformer", "out=" + out, "model.num_key_value_heads=2"}),
      {"shared_qk=false"});
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace focus
