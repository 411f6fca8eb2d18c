#include <limits>

#include "data/settings/config.h"
#include "focus/training/training.h"
#include "layers/family.h"
#include "tests/support/cli.h"

// What a training run writes, what it does not change and when it refuses to continue.
namespace focus {
namespace {

TEST(CliTrain, RetrofitWritesConfigMetricsAndAdapter) {
  const std::string out = cli().fresh("run"), base = xxh3_file_hex(cli().base());
  cli().must_run(cli().retrofit({"out=" + out, "eval_every=4"}));

  RunConfig config;
  read_config_text(read_text(out + "/config.yaml"), "config.yaml", {}, config);
  EXPECT_EQ(config.steps, 8);
  EXPECT_EQ(config.focus.num_groups, 3);
  EXPECT_EQ(config.focus.tokens().sinkhorn_iters, TokenSettings().sinkhorn_iters);
  EXPECT_TRUE(contains(read_text(out + "/config.yaml"), "sinkhorn_iters:")) << "defaults left out";

  std::vector<int> steps, validations;
  for (const auto& record : read_metrics(out + "/metrics.jsonl")) {
    if (record.contains("valid_loss")) {
      validations.push_back(record.at("step"));
      continue;
    }
    steps.push_back(record.at("step"));
    for (const char* key : {"loss", "grad_norm", "lr", "tokens_per_second"}) {
      ASSERT_TRUE(record.at(key).is_number()) << key << " in " << record;
      EXPECT_GT(record.at(key).get<double>(), 0) << key << " in " << record;
    }
  }
  EXPECT_EQ(steps, (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(validations, (std::vector<int>{0, 4, 8}));
  EXPECT_TRUE(fs::exists(out + "/focus.h5"));
  EXPECT_FALSE(fs::exists(out + "/model.h5"));
  EXPECT_EQ(xxh3_file_hex(cli().base()), base);
}

TEST(CliTrain, LargestGroupStandsAtEveryLineOfAFocusRun) {
  const std::string out = cli().fresh("run"), dense = cli().fresh("dense");
  cli().must_run(cli().retrofit(
      words("out={} data.gradient_accumulation_steps=2 focus.ablations.balance_loss=100", out)));
  int lines = 0;
  for (const auto& record : read_metrics(out + "/metrics.jsonl")) {
    if (!record.contains("loss")) continue;
    ++lines;
    // K sum_k f_k p_k is about 1 or more in each layer.
    EXPECT_GT(record.at("auxiliary_loss").get<double>(), 90);
    const auto layers = record.at("largest_group_layers").get<std::vector<double>>();
    double mean = 0;
    for (const double share : layers) {
      EXPECT_GE(share, 1.0 / 3);
      EXPECT_LE(share, 1);
      mean += share / static_cast<double>(layers.size());
    }
    EXPECT_NEAR(record.at("largest_group").get<double>(), mean, 1e-12);
    for (const char* name : {"size_entropy", "assignment_entropy"}) {
      const auto entropies = record.at(std::string(name) + "_layers").get<std::vector<double>>();
      ASSERT_EQ(entropies.size(), 2u);
      for (const double entropy : entropies) {
        EXPECT_GT(entropy, 0);
        EXPECT_LE(entropy, std::log(3.0) + 1e-9);
      }
      EXPECT_NEAR(record.at(name).get<double>(), (entropies[0] + entropies[1]) / 2, 1e-12);
    }
  }
  EXPECT_EQ(lines, 8);

  cli().must_run(cli().scratch({"out=" + dense}));
  for (const auto& record : read_metrics(dense + "/metrics.jsonl"))
    EXPECT_FALSE(record.contains("largest_group") || record.contains("auxiliary_loss")) << record;

  const auto page_of = [&](const std::string& run) {
    const std::string page = cli().fresh("report") + ".html";
    cli().must_run({"report", "--run", run, "--out", page});
    return read_text(page);
  };
  EXPECT_TRUE(contains(page_of(out), "Largest group&#39;s share of tokens") ||
              contains(page_of(out), "Largest group's share of tokens"));
  EXPECT_FALSE(contains(page_of(dense), "share of tokens"));
}

TEST(CliTrain, OneGroupThatHasNearlyAllIsToldOfOnceALayer) {
  const auto run = [](const Words& more) {
    return cli().must_run(cli().retrofit(Words{"out=" + cli().fresh("run"), "steps=3"} + more)).err;
  };
  const auto told = [](const std::string& err) {
    std::size_t times = 0;
    for (const std::string& line : lines_of(err))
      times += contains(line, "warning: layer ") && contains(line, "the largest group has");
    return times;
  };
  // The largest of three groups always has more than a third.
  const std::string low = run({"warn_largest_group=0.3"});
  EXPECT_EQ(told(low), 2u) << low;
  expect_parts(low, {"warn_largest_group 0.3"});
  EXPECT_EQ(told(run({"warn_largest_group=0.3", "log_every=100"})), 2u);  // the last step's line
  EXPECT_EQ(told(run({"warn_largest_group=0"})), 0u);
  EXPECT_EQ(told(run({"warn_largest_group=1"})), 0u);
  EXPECT_EQ(told(run({"focus.num_groups=1"})), 0u);
}

TEST(CliTrain, WithoutValidationTextNothingIsSaidOfValidation) {
  const std::string out = cli().fresh("run"), json = cli().fresh("figures.json");
  const Words command = cli().retrofit({"out=" + out, "data.valid=[]", "data.valid_fraction=0"});
  const ProcessResult first = cli().must_run(command + Words{"--stop-at", "3"});
  const ProcessResult second = cli().must_run(command + Words{"--resume", "--json", json});
  for (const ProcessResult& result : {first, second})
    for (const char* word : {"nan", "valid loss", "validation"})
      EXPECT_FALSE(contains(result.out + result.err, word)) << word << " in " << result.err;
  expect_parts(second.out, {"focus.h5: 8 steps\n"});
  const auto records = metrics_of(out);
  EXPECT_EQ(records.size(), 8u);
  for (const auto& record : records) EXPECT_TRUE(record.contains("loss")) << record;
  const auto figures = read_json(json);
  EXPECT_FALSE(figures.contains("valid_loss") || figures.contains("valid_loss_start")) << figures;
  cli().must_run({"report", "--run", out, "--out", out + "/report.html"});
}

TEST(CliTrain, NeitherAdapterNorCheckpointHoldsAFrozenWeight) {
  const StoreReader store(cli().adapter());
  EXPECT_EQ(store.kind(), "adapter");
  for (const std::string& path : store.all_datasets())
    EXPECT_TRUE(path.starts_with("/focus/") || path.starts_with("/train/") ||
                path == "/config.yaml")
        << path;
  EXPECT_TRUE(store.has("/focus/layer_000/centroids"));
  EXPECT_LT(fs::file_size(cli().adapter()), std::uintmax_t{16} << 10);
  EXPECT_LT(fs::file_size(cli().adapter()), fs::file_size(cli().base()) / 8);
  const std::string out = cli().fresh("run");
  cli().must_run(cli().retrofit({"out=" + out, "--stop-at", "2"}));
  const StoreReader checkpoint(out + "/checkpoints/step_000002.h5");
  EXPECT_EQ(checkpoint.kind(), "training");
  for (const std::string& path : checkpoint.all_datasets())
    EXPECT_FALSE(contains(path, "/model")) << path;
}

TEST(CliTrain, DenseAttentionIsDenseOnABaseThatWasTrainedWithFocus) {
  const std::string out = cli().fresh("run");
  cli().must_run(cli().scratch({"out=" + out, "attention=focus"}));
  RunConfig config;
  config.method = Method::full;
  config.base = out + "/model.h5";
  config.data.train = {cli().train_text()};
  config.data.valid = {cli().valid_text()};
  config.data.context = 64;
  config.data.cache_dir = cli().fresh("cache");
  Session session = open_session(config);

  LoadedModel model = load_model(config.base);
  ASSERT_TRUE(model.focus());
  std::vector<std::int32_t> ids(60);
  for (std::size_t t = 0; t < ids.size(); ++t) ids[t] = static_cast<std::int32_t>(60 + 7 * t % 50);
  const NoGrad guard;
  const auto hidden = [&](Decoder& decoder) { return decoder.hidden_states(ids, 1).value(); };
  EXPECT_FALSE(same_bits(hidden(*session.model().decoder), hidden(*model.decoder)));
  model.focus()->mode.kind = AttentionKind::dense;
  EXPECT_TRUE(same_bits(hidden(*session.model().decoder), hidden(*model.decoder)));
}

TEST(CliTrain, ScratchAndFullChangeEveryWeight) {
  const auto weights = [](const std::string& path) { return StoreReader(path).source("/model"); };
  const std::string out = cli().fresh("full");
  cli().must_run(cli().retrofit({"out=" + out, "method=full", "steps=1"}));
  const auto before = weights(cli().base()), after = weights(out + "/model.h5");
  ASSERT_EQ(before->tensors().size(), after->tensors().size());
  for (const TensorInfo& info : before->tensors())
    EXPECT_FALSE(same_bits(before->read(info.name), after->read(info.name))) << info.name;
}

TEST(CliTrain, DropoutIsOfTrainingAlone) {
  const auto records = [](const Words& command, const std::string& dropout) {
    const std::string out = cli().fresh("run");
    cli().must_run(command + Words{"out=" + out, "model.dropout=" + dropout});
    return metrics_of(out);
  };
  for (const Words& command :
       {cli().scratch({"model.model_type=gpt2", "steps=2"}), cli().scratch({"steps=2"}),
        cli().retrofit({"method=full", "attention=focus", "steps=2"})}) {
    const auto without = records(command, "0"), with = records(command, "0.5");
    EXPECT_EQ(with.at(0), without.at(0)) << "the validation before the first step";
    EXPECT_NE(with.at(1).at("loss"), without.at(1).at("loss"));
    EXPECT_NE(with.at(1).at("loss"), with.at(2).at("loss"));
  }
}

TEST(CliTrain, AnExistingRunIsRefusedUntilToldWhatToDo) {
  const std::string out = cli().fresh("run"), anew = cli().fresh("anew");
  cli().must_run(cli().retrofit({"out=" + out}));
  const auto before = snapshot(out);
  expect_refused(cli().retrofit({"out=" + out}), {out, "--resume", "--overwrite"});
  EXPECT_EQ(snapshot(out), before);
  cli().must_run(cli().retrofit({"out=" + out, "seed=2", "steps=5", "--overwrite"}));
  cli().must_run(cli().retrofit({"out=" + anew, "seed=2", "steps=5"}));
  expect_same_run(out, anew);
  for (const auto& [name, checksum] : snapshot(out))
    EXPECT_NE(name, "checkpoints/step_000008.h5") << "left from the run before";
}

TEST(CliTrain, ResumeWithOtherSettingsIsRefusedNamingTheKey) {
  const std::string out = cli().fresh("run");
  cli().must_run(cli().retrofit({"out=" + out, "--stop-at", "3"}));
  const auto before = snapshot(out);
  const std::vector<std::pair<std::string, std::string>> changes = {
      {"optim.lr=0.02", "optim.lr: 0.01 before, 0.02 now"},
      {"focus.num_groups=4", "focus.num_groups: 3 before, 4 now"},
      {"data.batch=1", "data.batch: 2 before, 1 now"},
      {"steps=2", "steps: 8 before, 2 now"},
      {"precision=bf16", "precision: float32 before, bf16 now"},
      {"seed=3", "seed: 1 before, 3 now"}};
  for (const auto& [key, shown] : changes) {
    SCOPED_TRACE(key);
    expect_refused(cli().retrofit({"out=" + out, key, "--resume"}), {shown, "--overwrite"});
    EXPECT_EQ(snapshot(out), before);
  }
  const ProcessResult free = cli().must_run(
      cli().retrofit({"out=" + out, "threads=2", "log_every=3", "checkpoint_keep=5", "--resume"}));
  EXPECT_TRUE(contains(free.err, "resumed at step 3")) << free.err;
}

TEST(CliTrain, AFinishedRunGoesOnWithMoreSteps) {
  const std::string out = cli().fresh("run");
  cli().must_run(cli().retrofit({"out=" + out}));
  const ProcessResult more = cli().must_run(cli().retrofit({"out=" + out, "steps=11", "--resume"}));
  expect_parts(more.err, {"steps was 8 and is 11: from step 8 on", "schedule of 11"});
  EXPECT_EQ(metrics_of(out).back().at("step"), 11);
  expect_parts(read_text(out + "/config.yaml"), {"steps: 11\n"});
}

TEST(CliTrain, StepsWithoutTheBalanceOfTheResultAreNoticed) {
  const auto notices = [](const Words& keys) {
    return cli().must_run(cli().retrofit(keys + words("out={}", cli().fresh("run")))).err;
  };
  const std::string part = "focus.tokens.sequence_steps 8 is not below steps 8: no step trains";
  expect_parts(notices("focus.tokens.sequence_steps=8"), {part});
  for (const Words keys : {"seed=2", "focus.tokens.sequence_steps=7",
                           "focus.tokens.sequence_steps=8 focus.tokens.balance=sequence"})
    EXPECT_FALSE(contains(notices(keys), "sequence_steps"));
}

TEST(CliTrain, EpochsSayTheNumberOfSteps) {
  const std::string out = cli().fresh("run");
  const auto dry = [&](const std::string& epochs) {
    return cli().figures(cli().retrofit({"out=" + out, "--dry-run", epochs})).at("tokens");
  };
  const auto windows = dry("epochs=1").get<std::int64_t>() / 64;
  EXPECT_GT(windows, 20);
  EXPECT_EQ(windows % 2, 0) << "whole batches of two";
  EXPECT_NEAR(dry("epochs=3").get<double>(), 3.0 * 64 * static_cast<double>(windows), 6 * 64);
  cli().must_run(cli().retrofit({"out=" + out, "epochs=0.1"}));
  const auto steps = metrics_of(out).back().at("step").get<std::int64_t>();
  EXPECT_NEAR(static_cast<double>(steps), 0.1 * static_cast<double>(windows) / 2, 1);
}

TEST(CliTrain, ARunsFolderIsItsResultAndAnUnfinishedOneIsCalledThat) {
  const std::string focus = cli().fresh("focus"), lora = cli().fresh("lora"),
                    peft = cli().fresh("peft"), part = cli().fresh("part");
  cli().must_run(cli().retrofit({"out=" + focus}));
  cli().must_run(cli().retrofit({"out=" + lora, "method=lora"}));
  cli().must_run(cli().retrofit({"out=" + part, "--stop-at", "2"}));
  const auto figures = [&](const std::string& adapters) {
    return cli().rows(words("{base} --text {}", cli().train_text()) + words(adapters));
  };
  const auto by_folder = figures("--attention hard:1 --adapter " + focus);
  EXPECT_EQ(by_folder, figures("--attention hard:1 --adapter " + focus + "/focus.h5"));
  expect_refused(words("eval {base} --text {} --adapter {}", cli().train_text(), part),
                 {part, "not finished", "--resume"});
  cli().must_run(cli().retrofit({"out=" + part, "method=lora", "--overwrite"}));
  fs::copy_file(focus + "/focus.h5", part + "/focus.h5");
  expect_refused(words("eval {base} --text {} --adapter {}", cli().train_text(), part),
                 {part, "two runs", "focus.h5", "lora.h5"});
  // Groups beside a LoRA: neither alone.
  EXPECT_NE(figures("--attention hard:1 --adapter " + focus + " --adapter " + lora), by_folder);
  expect_refused(
      words("eval {base} --text {} --adapter {} --adapter {}", cli().train_text(), focus, focus),
      {"two attentions"});
  cli().must_run(words("export {base} --adapter {} --out {}", lora, peft));
  EXPECT_EQ(figures("--attention dense --adapter " + peft),
            figures("--attention dense --adapter " + lora));
  EXPECT_TRUE(read_json(peft + "/adapter_config.json").at("base_model_name_or_path").is_null())
      << "a checkpoint file is no name that PEFT opens";
}

TEST(CliTrain, JsonGoesToStandardOutputAlone) {
  const ProcessResult result = cli().must_run(words("info {base} --json -"));
  EXPECT_EQ(nlohmann::json::parse(result.out).at("parameters"),
            cli().figures({"info", cli().base()}).at("parameters"));
  EXPECT_FALSE(result.err.empty());
}

TEST(CliTrain, ResumeOnAChangedBaseIsRefused) {
  for (const char* method : {"retrofit", "two_phase"}) {
    const std::string base = cli().fresh("base.h5"), out = cli().fresh("run");
    fs::copy_file(cli().base(), base);
    const Words command = cli().retrofit(
        words("base={} out={} method={} two_phase.phase1_steps=4", base, out, method));
    cli().must_run(command + "--stop-at 3");
    const auto before = snapshot(out);
    fs::copy_file(cli().other_base(), base, fs::copy_options::overwrite_existing);
    expect_refused(command + "--resume", {"fingerprint", base});
    EXPECT_EQ(snapshot(out), before);
  }
}

TEST(CliTrain, ResumeRefusesOtherTextOfTheSameLength) {
  const std::string text = cli().fresh("text.txt"), out = cli().fresh("run");
  std::string words = read_text(cli().train_text());
  write_text(text, words);
  cli().must_run(cli().retrofit({"data.train=" + text, "out=" + out, "--stop-at", "2"}));
  words[100] = words[100] == 'x' ? 'y' : 'x';
  write_text(text, words);
  expect_refused(cli().retrofit({"data.train=" + text, "out=" + out, "--resume"}),
                 {"different text", "--overwrite"});
}

TEST(CliTrain, DryRunCountsAndWritesNothing) {
  const std::string out = cli().fresh("dry");
  const ProcessResult result = cli().must_run(cli().retrofit({"out=" + out, "--dry-run"}));
  // 2 layers: a projection of 32 x 8 and 3 centroids of 8.
  expect_parts(result.out, {"trainable parameters  560\n"});
  const auto figures = cli().figures(cli().retrofit({"out=" + out, "--dry-run"}));
  const auto info = cli().figures({"info", cli().base()});
  EXPECT_EQ(figures.at("trainable"), 560);
  EXPECT_EQ(figures.at("frozen"), info.at("parameters"));
  EXPECT_EQ(figures.at("tokens"), 8 * 2 * 64);
  const auto bytes = [&](const std::string& what) {
    return figures.at(what + "_bytes").get<std::int64_t>();
  };
  EXPECT_EQ(bytes("memory"), bytes("weight") - bytes("mapped") + bytes("gradient") +
                                 bytes("optimiser") + bytes("activation") + bytes("program"));
  EXPECT_GT(bytes("mapped"), bytes("weight") / 2) << "large tensors of a frozen base stay there";
  const auto scratch = cli().figures(cli().scratch({"out=" + out, "--dry-run"}));
  EXPECT_EQ(scratch.at("trainable"), info.at("parameters"));
  EXPECT_EQ(scratch.at("frozen"), 0);
  EXPECT_FALSE(fs::exists(out));
  // The lines' parts add up to their sums, to the last digit.
  double memory = 0, sum = -1;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("memory: total"))
      sum = std::stod(line.substr(22));
    else if (line.starts_with("memory: "))
      memory += std::stod(line.substr(22));
  EXPECT_NEAR(memory, sum, 1e-6) << result.out;
  expect_parts(result.out, {"time: steps  ", "time: validations  ", "time of the run  "});
  EXPECT_GT(figures.at("validation_seconds"), 0.0);
  EXPECT_GT(figures.at("seconds"), figures.at("validation_seconds"));
  // Nor is a run that is there touched.
  cli().must_run(cli().retrofit({"out=" + out, "--stop-at", "3"}));
  const auto before = snapshot(out);
  cli().must_run(cli().retrofit({"out=" + out, "--dry-run"}));
  EXPECT_EQ(snapshot(out), before);
}

TEST(CliTrain, ANewModelHasRoomForALongerContextLater) {
  for (const char* type : {"llama", "gpt2"}) {
    SCOPED_TRACE(type);
    const std::string out = cli().fresh("short"), longer = cli().fresh("longer");
    cli().must_run(cli().scratch({"out=" + out, "steps=1", "model.max_position_embeddings=128",
                                  fmt::format("model.model_type={}", type)}));
    EXPECT_EQ(cli().figures({"info", out + "/model.h5"}).at("positions"), 128);
    const Words onward =
        cli().config({"method=full", "base=" + out + "/model.h5", "steps=1", "out=" + longer});
    expect_refused(onward + Words{"data.context=129"}, {"data.context 129", "128 positions"});
    cli().must_run(onward + Words{"data.context=128"});
  }
}

/// From scratch with Focus, then generated from with and without a cache, retrofitted in bf16.
TEST(CliTrain, EveryFamily) {
  for (const Family& family : families()) {
    SCOPED_TRACE(family.model_type);
    Words shape = {"model.model_type=" + family.model_type, "steps=3", "attention=focus"};
    const bool slides = family.has_local_layers();
    if (slides) shape = shape + Words{"model.sliding_window=12"};
    const std::string out = cli().fresh("scratch"), store = out + "/model.h5";
    const auto dry = cli().figures(cli().scratch(shape + Words{"out=" + out, "--dry-run"}));
    cli().must_run(cli().scratch(shape + Words{"out=" + out}));
    const auto info = cli().figures({"info", store});
    EXPECT_EQ(info.at("model_type"), family.model_type);
    // 2 layers: a projection of 32 x 8 and 3 centroids of 8.
    EXPECT_EQ(dry.at("trainable"), info.at("parameters").get<std::int64_t>() + 560);
    EXPECT_EQ(info.contains("sliding_window"), slides);
    const double before = read_metrics(out + "/metrics.jsonl").front().at("valid_loss");
    const double after = read_metrics(out + "/metrics.jsonl").back().at("valid_loss");
    EXPECT_LT(after, before);

    const Words command = words("generate {} --prompt {} --max-new-tokens 30 --attention hard:1",
                                store, "Once upon a time");
    EXPECT_EQ(cli().figures(command).at("ids"), cli().figures(command + "--no-cache").at("ids"));
    const std::string adapter = cli().fresh("retrofit");
    cli().must_run(cli().config({"base=" + store, "precision=bf16", "steps=2", "out=" + adapter}));
    cli().must_run(words("leak-test {} --adapter {}/focus.h5", store, adapter));
  }
}

/// A base with one number that blows up.
std::string base_with(const std::string& tensor, float value) {
  const std::string folder = model_folder();
  change_weights(folder, [&](const std::string& name, Tensor& numbers) {
    if (name == tensor) numbers.data()[0] = value;
  });
  return folder;
}

struct Divergence {
  std::string name, base;
  Words keys;
  std::vector<std::string> said;
};

TEST(CliTrain, NumbersThatAreNoneStopARunAndEarlierCheckpointsStay) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::string layer = "model.layers.0.";
  for (const auto& [name, base, keys, said] : std::vector<Divergence>{
           {"loss", "", "optim.lr=1e30", {"step 1", "the loss is"}},
           {"validation after the last step",
            "",
            "optim.lr=1e30 steps=1",
            {"step 1", "validation loss"}},
           {"update", "", "optim.lr=1e39", {"step 1", "not finite"}},
           {"inf in a weight", base_with(layer + "mlp.down_proj.weight", kInfinity), {}, {}},
           {"NaN in the embedding",
            base_with("model.embed_tokens.weight", std::numeric_limits<float>::quiet_NaN()),
            "data.batch=4",
            {}},
           {"scores that overflow", base_with(layer + "self_attn.q_proj.weight", 3e38f), {}, {}},
           {"a learning rate of 1e20", cli().base(), "optim.lr=1e20", {}},
           {"the same for centroids", cli().base(), "method=retrofit optim.lr=1e38", {}},
           {"the same for LoRA", cli().base(), "method=lora optim.lr=1e20", {}}}) {
    SCOPED_TRACE(name);
    const std::string out = cli().fresh("diverged");
    const Words more =
        Words{"out=" + out} + "optim.clip_norm=0 optim.warmup_steps=0 checkpoint_every=1" + keys;
    const ProcessResult result =
        cli().run(base.empty() ? cli().scratch(more)
                               : cli().config(words("base={} method=full", base) + more));
    EXPECT_EQ(result.status, 1) << result.out << result.err;
    ASSERT_FALSE(result.err.empty());
    const std::string last = lines_of(result.err).back();
    EXPECT_TRUE(last.starts_with("focus train: ")) << last;
    EXPECT_TRUE(contains(last, "nan") || contains(last, "inf") || contains(last, "finite")) << last;
    expect_parts(last, said);
    EXPECT_FALSE(fs::exists(out + "/model.h5")) << "a result was written";
    for (const auto& [file, checksum] : snapshot(out)) {
      if (!file.ends_with(".h5")) continue;
      const StoreReader store(fs::path(out) / file);
      store.verify();
      if (store.has("/model") && base.empty()) {
        EXPECT_EQ(nonfinite_of(*store.source("/model")).count, 0) << file;
      }
    }
  }
}

TEST(CliTrain, ANonFiniteGradientIsNamed) {
  // The last norm's weight is 0, so the logits and the loss stay small; but the head pulls with
  // nearly the largest float, and over a text of one letter these pulls add up beyond it.
  const std::string base = model_folder(), text = cli().fresh("text.txt"), out = cli().fresh("run");
  change_weights(base, [](const std::string& name, Tensor& tensor) {
    if (name == "model.norm.weight") tensor.fill(0);
    if (name != "lm_head.weight") return;
    constexpr Index kLetter = 'a' - '!' + 2;
    tensor.fill(Real(3e38));
    std::fill_n(tensor.data() + kLetter * tensor.cols(), tensor.cols(), Real(-3e38));
  });
  write_text(text, std::string(1500, 'a'));
  const ProcessResult result = cli().run(cli().config(
      words("method=full base={} data.train={} data.valid={} out={}", base, text, text, out)));
  EXPECT_EQ(result.status, 1) << result.out << result.err;
  ASSERT_FALSE(result.err.empty());
  expect_parts(lines_of(result.err).back(),
               {"step 0: the gradient of model.norm.weight is not finite"});
  EXPECT_FALSE(fs::exists(out + "/model.h5"));
}

}  // namespace
}  // namespace focus
