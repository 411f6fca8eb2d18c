#include "focus/training/tasks.h"

#include <gtest/gtest.h>

#include "focus/models/model_export.h"
#include "focus/training/training.h"
#include "tests/support/byte_model.h"
#include "tests/support/compare.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

const std::string kText =
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity.";

FitSettings few_groups() {
  FitSettings settings;
  settings.focus.num_groups = 4;
  settings.focus.local_window = 8;
  return settings;
}

void save(const std::filesystem::path& path, LoadedModel& model) {
  StoreWriter store(path, "model");
  write_model(store, model);
  store.commit();
}

TEST(Tasks, EveryFamilyIsFittedScoredAndGoneOnWith) {
  for (const std::string& family : family_names()) {
    LoadedModel model = byte_model(family);
    const Row dense = evaluate(model, "", {.documents = {kText}});
    EXPECT_EQ(dense.attention.name, "dense") << family;
    fit(model, {.documents = {kText}}, few_groups());
    EXPECT_EQ(fitted_context(model), 128) << family;  // its positions
    const Row sparse = evaluate(model, "", {.documents = {kText}});
    EXPECT_EQ(sparse.attention.kind, AttentionKind::summary) << family;
    EXPECT_LE(sparse.pairs_attended, dense.pairs_attended) << family;
    EXPECT_EQ(evaluate(model, "dense", {.documents = {kText}}).nats_per_token, dense.nats_per_token)
        << family;
    const GeneratedText made = generate(model, "It was");
    EXPECT_EQ(made.attention.kind, AttentionKind::summary) << family;
    EXPECT_EQ(made.ids.size(), 64u) << family;
    EXPECT_GT(*made.keys_read, 0) << family;
  }
}

TEST(Tasks, TextsInMemoryAreThoseOfFiles) {
  const TempFolder folder;
  write_text(folder / "a.txt", kText);
  write_text(folder / "b.txt", "Another text.");
  const Texts files = {.files = {folder / "a.txt", folder / "b.txt"}};
  const Texts memory = {.documents = {kText, "Another text."}};
  LoadedModel model = byte_model();
  const Row of_files = evaluate(model, "dense", files), row = evaluate(model, "dense", memory);
  EXPECT_EQ(row.nats_per_token, of_files.nats_per_token);
  EXPECT_EQ(row.tokens_scored, std::ssize(kText) - 1 + 12);
  EXPECT_EQ(read_texts(model, memory)[1].name, "text 2");
  EXPECT_EQ(read_texts(model, {.files = {folder / "a.txt"}, .documents = {"Another text."}}).size(),
            2u);
  EXPECT_EQ(read_texts(model, {.documents = {"a|b"}}, {.separator = "|"}).size(), 2u);
  EXPECT_EQ(error_of([&] { evaluate(model, "dense", Texts{}); }),
            "the texts have no token to score");

  LoadedModel other = byte_model();
  fit(model, files, few_groups());
  fit(other, memory, few_groups());
  EXPECT_EQ(evaluate(model, "", memory).nats_per_token, evaluate(other, "", memory).nats_per_token);

  LoadedModel base = byte_model();
  save(folder / "base.h5", base);
  RunConfig config;
  config.base = folder / "base.h5";
  config.steps = 2;
  config.data.context = 32;
  config.optim.warmup_steps = 1;
  EXPECT_NE(error_of([&] { open_session(config); }).find("data.train is empty"), std::string::npos);
  config.data.train_texts = {kText};
  config.data.valid_texts = {kText};
  Session session = open_session(config);
  const TrainingResult trained = run_training(session);
  config.data.train_texts.clear();
  config.data.valid_texts.clear();
  config.data.train = config.data.valid = {folder / "a.txt"};
  config.data.cache_dir = folder / "cache";
  Session again = open_session(config);
  EXPECT_EQ(session.data().fingerprint, again.data().fingerprint);
  EXPECT_EQ(*trained.valid_loss, *run_training(again).valid_loss);
  EXPECT_LT(*trained.valid_loss, 10);
}

TEST(Tasks, OpensWhatMatricesAreStoredInAndAttachesAdapters) {
  const TempFolder folder;
  LoadedModel made = byte_model();
  ModelConfig wide = made.decoder->config();  // rows are whole blocks of 32
  wide.hidden_size = 32;
  wide.head_dim = 8;
  made.decoder = std::make_unique<Decoder>(wide);
  Rng rng(1);
  initialise(*made.decoder, rng);
  save(folder / "exact.h5", made);
  const ModelFiles files = open_model(folder / "exact.h5");
  {
    StoreWriter store(folder / "blocks.h5", "model");
    write_model_head(store, files.config, files.tokenizer.get(), files.side_files);
    EXPECT_GT(import_weights(files, store, Dtype::q8_0).types.count("q8_0"), 0u);
    store.commit();
  }
  const auto precision = [](const Row& row) { return row.precision; };
  const Texts text = {.documents = {kText}};
  LoadedModel exact = open(folder / "exact.h5"), blocks = open(folder / "blocks.h5");
  EXPECT_EQ(precision(evaluate(exact, "", text)), Precision::float32);
  EXPECT_EQ(precision(evaluate(blocks, "", text)), Precision::q8);
  EXPECT_EQ(generate(blocks, "It").cache_dtype, CacheDtype::float16);
  LoadedModel named = open(folder / "blocks.h5", {.precision = Precision::float32});
  EXPECT_EQ(precision(evaluate(named, "", text)), Precision::float32);
  open(folder / "blocks.h5", {.use = WeightUse::trainable});

  FocusModel& focus = fit(exact, text, few_groups());
  write_adapter(folder / "keys.h5", focus, exact);
  LoadedModel again = open(folder / "exact.h5", {.adapters = {folder / "keys.h5"}});
  EXPECT_EQ(evaluate(again, "", text).nats_per_token, evaluate(exact, "", text).nats_per_token);
  EXPECT_NE(error_of([&] {
              open(folder / "exact.h5", {.adapters = {folder / "keys.h5", folder / "keys.h5"}});
            }).find("two attentions"),
            std::string::npos);
}

TEST(Tasks, AFunctionGetsTheTextOfEveryTokenAndCanEndIt) {
  LoadedModel model = byte_model();
  TextOptions options;
  options.generation.max_new_tokens = 20;
  std::string heard;
  int calls = 0;
  const GeneratedText made = generate(model, "It was", options, [&](const std::string& text) {
    heard += text;
    ++calls;
    return true;
  });
  EXPECT_EQ(heard, made.text);
  EXPECT_EQ(calls, 21);  // and once for what was held back
  EXPECT_EQ(made.stop, "max-new-tokens");
  EXPECT_EQ(made.prompt_tokens, 6);
  options.cached = false;
  const GeneratedText whole = generate(model, "It was", options);
  EXPECT_EQ(whole.ids, made.ids);
  EXPECT_FALSE(whole.cache_dtype);
  EXPECT_FALSE(whole.keys_read);

  calls = 0;
  const GeneratedText ended =
      generate(model, "It was", options, [&](const std::string&) { return ++calls < 3; });
  EXPECT_EQ(ended.stop, "caller");
  EXPECT_EQ(ended.ids, std::vector(made.ids.begin(), made.ids.begin() + 3));

  EXPECT_EQ(error_of([&] { generate(model, ""); }),
            "the prompt has no tokens; give it some text to continue");
  EXPECT_EQ(error_of([&] { generate(model, std::string(200, 'a')); }),
            "the prompt has 200 tokens, but tiny llama has 128 positions; shorten it");
  options.attention = "hard:2";
  EXPECT_NE(error_of([&] { generate(model, "It", options); }).find("has no Focus"),
            std::string::npos);
}

TEST(Tasks, WhatMayBeginAStopTextIsHeldBack) {
  LoadedModel model = byte_model();
  // The model says what it will, 8 bits at a time; the stop text is of what it says.
  TextOptions options;
  options.generation.max_new_tokens = 30;
  const std::string whole = generate(model, "It was", options).text;
  ASSERT_GT(whole.size(), 12u);
  for (const std::size_t n : {1u, 2u, 5u}) {
    const std::string until = whole.substr(6, n);
    options.generation.until = {until, "never said"};
    std::string heard;
    const GeneratedText made = generate(model, "It was", options, [&](const std::string& text) {
      heard += text;
      return true;
    });
    EXPECT_EQ(made.stop, "until");
    EXPECT_EQ(made.text, whole.substr(0, whole.find(until)));
    EXPECT_EQ(heard, made.text);
  }
  options.generation.until = {whole + "and more"};  // begun, never said
  std::string heard;
  generate(model, "It was", options, [&](const std::string& text) {
    heard += text;
    return true;
  });
  EXPECT_EQ(heard, whole);
}

TEST(Tasks, ChatsByTheModelsTemplateAndSamplesAsItsFilesSay) {
  const TempFolder folder;
  LoadedModel made = byte_model();
  auto files = std::make_shared<ModelFiles>();
  files->side_files[kChatTemplate] =
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}[assistant]{% endif %}";
  files->side_files[kGenerationConfig] = R"({"do_sample": true, "temperature": 0.6, "top_k": 7})";
  files->generation = read_generation_config(files->side_files, "test");
  made.files = files;
  EXPECT_EQ(chat_prompt(made, {{{"role", "user"}, {"content", "Hi"}}}), "[user]Hi[assistant]");
  const TextOptions options = TextOptions::of(made);
  EXPECT_EQ(options.generation.sampling.temperature, 0.6);
  EXPECT_EQ(options.generation.sampling.top_k, 7);
  const GeneratedText answer = chat(made, {{"system", "Be brief."}, {"user", "Hi"}}, options);
  EXPECT_EQ(answer.prompt_tokens, std::ssize(std::string("[system]Be brief.[user]Hi[assistant]")));
  EXPECT_EQ(answer.ids, generate(made, "[system]Be brief.[user]Hi[assistant]", options).ids);
}

}  // namespace
}  // namespace focus
