#include "data/settings/config.h"
#include "data/tensors/safetensors.h"
#include "focus/training/training.h"
#include "layers/family.h"
#include "tests/support/cli.h"

// What a training run writes, what it does not change and when it refuses to continue.
namespace focus {
namespace {

TEST(CliTrain, RetrofitWritesConfigMetricsAndAdapter) {
  const std::string out = cli().fresh("run");
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
}

TEST(CliTrain, LargestGroupStandsAtEveryLineOfAFocusRun) {
  const std::string out = cli().fresh("run"), dense = cli().fresh("dense");
  cli().must_run(cli().retrofit({"out=" + out, "data.gradient_accumulation_steps=2"}));
  int lines = 0;
  for (const auto& record : read_metrics(out + "/metrics.jsonl")) {
    if (!record.contains("loss")) continue;
    ++lines;
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
    EXPECT_FALSE(record.contains("largest_group")) << record;

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
  EXPECT_TRUE(contains(low, "warn_largest_group 0.3")) << low;
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
  EXPECT_TRUE(contains(second.out, "focus.h5: 8 steps\n")) << second.out;
  const auto records = metrics_of(out);
  EXPECT_EQ(records.size(), 8u);
  for (const auto& record : records) EXPECT_TRUE(record.contains("loss")) << record;
  const auto figures = nlohmann::json::parse(read_text(json));
  EXPECT_FALSE(figures.contains("valid_loss") || figures.contains("valid_loss_start")) << figures;
  cli().must_run({"report", "--run", out, "--out", out + "/report.html"});
}

TEST(CliTrain, LossIsThatOfTheTextWithoutAuxiliaryTerms) {
  const std::string plain = cli().fresh("plain"), pulled = cli().fresh("pulled");
  cli().must_run(cli().retrofit({"out=" + plain, "data.gradient_accumulation_steps=2"}));
  cli().must_run(cli().retrofit(
      {"out=" + pulled, "data.gradient_accumulation_steps=2", "focus.ablations.balance_loss=100"}));
  const auto before = read_metrics(plain + "/metrics.jsonl"),
             after = read_metrics(pulled + "/metrics.jsonl");
  const auto first_loss = [](const auto& records) {
    return *std::ranges::find_if(records, [](const auto& r) { return r.contains("loss"); });
  };
  EXPECT_EQ(before.front().at("valid_loss"), after.front().at("valid_loss"));
  EXPECT_EQ(first_loss(before).at("loss"), first_loss(after).at("loss"));
  EXPECT_FALSE(first_loss(before).contains("auxiliary_loss"));
  // K sum_k f_k p_k is about 1 or more in each layer.
  EXPECT_GT(first_loss(after).at("auxiliary_loss").get<double>(), 90);
  EXPECT_NE(before.back().at("valid_loss"), after.back().at("valid_loss"));
}

TEST(CliTrain, AdapterHoldsNoFrozenWeightAndIsSmall) {
  const StoreReader store(cli().adapter());
  EXPECT_EQ(store.kind(), "adapter");
  for (const std::string& path : store.all_datasets())
    EXPECT_TRUE(path.starts_with("/focus/") || path.starts_with("/train/") ||
                path == "/config.yaml")
        << path;
  EXPECT_TRUE(store.has("/focus/layer_000/centroids"));
  EXPECT_LT(fs::file_size(cli().adapter()), std::uintmax_t{16} << 10);
  EXPECT_LT(fs::file_size(cli().adapter()), fs::file_size(cli().base()) / 8);
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

TEST(CliTrain, CheckpointsOfARetrofitHoldNoFrozenWeightEither) {
  const std::string out = cli().fresh("run");
  cli().must_run(cli().retrofit({"out=" + out, "--stop-at", "2"}));
  const StoreReader store(out + "/checkpoints/step_000002.h5");
  EXPECT_EQ(store.kind(), "training");
  for (const std::string& path : store.all_datasets())
    EXPECT_FALSE(path.starts_with("/model") || path.starts_with("/optim/m/model") ||
                 path.starts_with("/optim/v/model"))
        << path;
}

TEST(CliTrain, FrozenWeightsKeepTheirBits) {
  const std::string base = cli().base();
  const std::string file_before = xxh3_file_hex(base);
  RunConfig config;
  const Words command =
      cli().retrofit({"out=" + cli().fresh("frozen"), "optim.lr=0.1", "optim.weight_decay=0.1",
                      "data.cache_dir=" + cli().fresh("cache")});
  read_config("", {command.begin() + 1, command.end()}, config);
  Session session = open_session(config);
  Decoder& decoder = *session.model().decoder;
  const auto numbers = [&] {
    std::vector<Tensor> all;
    for_each_parameter(decoder, [&](const std::string& name, const Weight& w) {
      EXPECT_FALSE(w.requires_grad()) << name;
      if (!w.is_frozen_matrix()) {
        all.push_back(w.value().clone());
        return;
      }
      Tensor rows(w.shape());
      for (Index i = 0; i < rows.rows(); ++i)
        w.frozen_matrix()->row(i, rows.data() + i * rows.cols());
      all.push_back(rows);
    });
    return all;
  };
  const std::vector<Tensor> before = numbers();
  ASSERT_GT(before.size(), 10u);
  EXPECT_TRUE(run_training_in_folder(session, {}).finished);
  const std::vector<Tensor> after = numbers();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same_bits(after[i], before[i])) << i;
  EXPECT_EQ(xxh3_file_hex(base), file_before);
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
  const std::string out = cli().fresh("run");
  expect_refused(cli().scratch({"out=" + out, "model.dropout=1"}), {"model.dropout is 1"});
  expect_refused(cli().retrofit({"out=" + out, "model.dropout=0.1"}),
                 {"model.dropout", "retrofit"});
  expect_refused(cli().retrofit({"out=" + out, "model.dropout=0.1", "method=lora"}),
                 {"model.dropout", "lora.dropout"});
  EXPECT_FALSE(fs::exists(out));
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
      {"steps=9", "steps: 8 before, 9 now"},
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

TEST(CliTrain, ResumeOnAChangedBaseIsRefused) {
  const std::string base = cli().fresh("base.h5"), out = cli().fresh("run");
  fs::copy_file(cli().base(), base);
  cli().must_run(cli().retrofit({"base=" + base, "out=" + out, "--stop-at", "3"}));
  const auto before = snapshot(out);
  fs::copy_file(cli().other_base(), base, fs::copy_options::overwrite_existing);
  expect_refused(cli().retrofit({"base=" + base, "out=" + out, "--resume"}), {"fingerprint", base});
  EXPECT_EQ(snapshot(out), before);
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
  EXPECT_FALSE(fs::exists(out));
  // 2 layers: a projection of 32 x 8 and 3 centroids of 8.
  EXPECT_TRUE(contains(result.out, "trainable parameters  560\n")) << result.out;
  const auto figures = cli().figures(cli().retrofit({"out=" + out, "--dry-run"}));
  EXPECT_FALSE(fs::exists(out));
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

    const Words command = {"generate",         store, "--prompt",    "Once upon a time",
                           "--max-new-tokens", "30",  "--attention", "hard:1"};
    EXPECT_EQ(cli().figures(command).at("ids"),
              cli().figures(command + Words{"--no-cache"}).at("ids"));
    const std::string adapter = cli().fresh("retrofit");
    cli().must_run(cli().config({"base=" + store, "precision=bf16", "steps=2", "out=" + adapter}));
    cli().must_run({"leak-test", store, "--adapter", adapter + "/focus.h5"});
  }
}

TEST(CliTrain, DryRunCountsWeightsInQ8ByAQuarter) {
  const Words dry = {"out=" + cli().fresh("dry"), "--dry-run"};
  const auto exact = cli().figures(cli().retrofit(dry));
  const auto figures = cli().figures(cli().retrofit(dry + Words{"precision=q8"}));
  const double share =
      figures.at("weight_bytes").get<double>() / exact.at("weight_bytes").get<double>();
  EXPECT_GT(share, 0.25);  // scales; norms, biases and centroids stay
  EXPECT_LT(share, 0.4);
}

TEST(CliTrain, DryRunLeavesAnExistingRunAlone) {
  const std::string out = cli().fresh("run");
  cli().must_run(cli().retrofit({"out=" + out, "--stop-at", "3"}));
  const auto before = snapshot(out);
  cli().must_run(cli().retrofit({"out=" + out, "--dry-run"}));
  EXPECT_EQ(snapshot(out), before);
}

struct Divergence {
  std::string name;
  Words keys;
  Words said;
};
void PrintTo(const Divergence& divergence, std::ostream* stream) { *stream << divergence.name; }
class NonFinite : public testing::TestWithParam<Divergence> {};

TEST_P(NonFinite, StopsTheRunAndKeepsEarlierCheckpoints) {
  const std::string out = cli().fresh("diverged");
  const ProcessResult result =
      cli().run(cli().scratch(Words{"out=" + out, "optim.clip_norm=0", "optim.warmup_steps=0",
                                    "checkpoint_every=1", "checkpoint_keep=8"} +
                              GetParam().keys));
  EXPECT_EQ(result.status, 1) << result.out << result.err;
  ASSERT_FALSE(result.err.empty());
  const std::string last = lines_of(result.err).back();
  EXPECT_TRUE(last.starts_with("focus train: ")) << last;
  for (const std::string& part : GetParam().said) EXPECT_TRUE(contains(last, part)) << last;
  EXPECT_FALSE(fs::exists(out + "/model.h5")) << "a result was written";
  for (const auto& entry : fs::directory_iterator(out + "/checkpoints")) {
    if (entry.path().extension() != ".h5") continue;
    const ProcessResult info = cli().run({"info", entry.path().string()});
    EXPECT_EQ(info.status, 0) << info.err;
    const StoreReader store(entry.path());
    EXPECT_EQ(nonfinite_of(*store.source("/model")).count, 0) << entry.path();
  }
}
INSTANTIATE_TEST_SUITE_P(
    Cli, NonFinite,
    testing::Values(
        Divergence{"loss", {"optim.lr=1e30"}, {"step 1", "the loss is"}},
        Divergence{"validation_after_the_last_step",
                   {"optim.lr=1e30", "steps=1"},
                   {"step 1", "validation loss"}},
        Divergence{"update", {"optim.lr=1e39", "checkpoint_every=1"}, {"step 1", "not finite"}}),
    [](const auto& test) { return test.param.name; });

TEST(CliTrain, ANonFiniteGradientIsNamed) {
  // The last norm's weight is 0, so the logits and the loss stay small; but the head pulls with
  // nearly the largest float, and over a text of one letter these pulls add up beyond it.
  const fs::path golden = fs::path(FOCUS_SOURCE_DIR) / "tests/golden/arch/llama_gqa";
  const fs::path base = cli().fresh("base");
  fs::create_directory(base);
  fs::copy_file(golden / "config.json", base / "config.json");
  const auto source = open_safetensors_folder(golden);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const TensorInfo& info : source->tensors()) {
    Tensor tensor = source->read(info.name);
    if (info.name == "model.norm.weight") tensor.fill(0);
    if (info.name == "lm_head.weight") {
      constexpr Index kLetter = 'a' - '!' + 2;
      tensor.fill(Real(3e38));
      std::fill_n(tensor.data() + kLetter * tensor.cols(), tensor.cols(), Real(-3e38));
    }
    tensors.emplace_back(info.name, tensor);
  }
  write_safetensors(base / "model.safetensors", tensors);
  const std::string text = cli().fresh("text.txt"), out = cli().fresh("run");
  write_text(text, std::string(1500, 'a'));
  const ProcessResult result = cli().run(
      cli().config({"method=full", "base=" + base.string(), "tokenizer=" + cli().ascii_tokenizer(),
                    "data.train=" + text, "data.valid=" + text, "out=" + out}));
  EXPECT_EQ(result.status, 1) << result.out << result.err;
  ASSERT_FALSE(result.err.empty());
  const std::string last = lines_of(result.err).back();
  EXPECT_TRUE(contains(last, "step 0: the gradient of model.norm.weight is not finite")) << last;
  EXPECT_FALSE(fs::exists(out + "/model.h5"));
}

}  // namespace
}  // namespace focus
