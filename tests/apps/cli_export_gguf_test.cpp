#include <cmath>

#include "data/gguf/gguf.h"
#include "focus/models/model_files.h"
#include "layers/gguf_settings.h"
#include "tests/support/cli.h"
#include "tests/support/golden_gguf.h"
#include "tests/support/golden_model.h"

// `focus export --gguf`: models and LoRAs as llama.cpp loads them, and the way back.
namespace focus {
namespace {

/// What a GGUF file has no key for.
ModelConfig without_unsaid(ModelConfig config) {
  config.bos_token_id = config.eos_token_id = std::nullopt;
  config.initializer_range = 0;
  return config;
}

LoadedModel loaded(const std::string& path) {
  return load_model(path, "", Precision::float32, WeightUse::trainable);
}

/// Every parameter, bit by bit; Gemma's norms, which the file has with 1 added, to their last one.
void expect_same_weights(const std::string& actual, const std::string& expected, Dtype matrices) {
  LoadedModel a = loaded(actual), e = loaded(expected);
  std::map<std::string, Tensor> wanted;
  for_each_parameter(
      *e.decoder, [&](const std::string& name, Variable& p) { wanted[name] = p.value().clone(); });
  for_each_parameter(*a.decoder, [&](const std::string& name, Variable& p) {
    const bool untied = name == "lm_head.weight" && !wanted.contains(name);
    Tensor& numbers = wanted.at(untied ? "embed_tokens.weight" : name);
    const bool vector = p.value().shape().rank() == 1 || name == "embed_positions.weight";
    if (!vector) round_to(matrices, numbers.span());
    if (vector && e.decoder->config().norm_weight_offset != 0) {
      for (Index i = 0; i < numbers.size(); ++i)
        ASSERT_NEAR(p.value()[i], numbers[i], 2e-7) << name;
      return;
    }
    EXPECT_TRUE(same_bits(p.value(), numbers)) << name;
  });
}

class ExportGguf : public testing::TestWithParam<std::string> {};

TEST_P(ExportGguf, ComesBackAsTheSameModelOrIsRefusedByName) {
  for (const auto& [option, dtype] :
       {std::pair{"float32", Dtype::f32}, {"f16", Dtype::f16}, {"bf16", Dtype::bf16}}) {
    const std::string out = cli().fresh("model.gguf");
    const ProcessResult result =
        cli().run({"export", golden_path(GetParam()), "--gguf", out, "--dtype", option});
    if (result.status != 0) {
      EXPECT_TRUE(contains(result.err, "cannot represent")) << result.err;
      EXPECT_FALSE(fs::exists(out));
      continue;
    }
    const ModelConfig expected = without_unsaid(golden_config(GetParam()).value());
    ModelConfig read = without_unsaid(read_gguf_config(GgufSource(out)));
    if (expected.tie_word_embeddings && !read.tie_word_embeddings) {
      // llama.cpp wants the tied head once more.
      EXPECT_TRUE(expected.model_type == "olmo2" || expected.model_type == "olmo3" ||
                  expected.model_type == "gpt_neox");
      read.tie_word_embeddings = true;
    }
    if (expected.model_type == "mistral") read.model_type = "mistral";
    if (expected.rope.scaling == RopeConfig::Scaling::llama3) {
      for (Index i = 0; i < read.rotary_dim() / 2; ++i)
        EXPECT_NEAR(read.rope.frequency(i, read.rotary_dim()),
                    expected.rope.frequency(i, read.rotary_dim()), 1e-6);
      read.rope = expected.rope;
    }
    EXPECT_EQ(read, expected);
    expect_same_weights(out, golden_path(GetParam()), dtype);
  }
}
INSTANTIATE_TEST_SUITE_P(Golden, ExportGguf, testing::ValuesIn(golden_models()));

/// Another program's file in and out: what it says of texts is kept as it is.
TEST(CliExportGguf, AGgufFilesOwnWordsGoOn) {
  int tried = 0;
  for (const fs::path& path : golden_gguf_files(".gguf")) {
    const std::string out = cli().fresh("again.gguf");
    const ProcessResult result =
        cli().run({"export", path.string(), "--gguf", out, "--dtype", "float32"});
    if (result.status != 0) continue;  // adapters, later parts, architectures that are not known
    ++tried;
    const GgufSource before(path), after(out);
    for (const std::string& key : before.metadata().keys())
      if (key.starts_with("tokenizer.") || key == "general.name") {
        EXPECT_TRUE(std::ranges::equal(after.metadata().stored(key), before.metadata().stored(key)))
            << path << ": " << key;
      }
    EXPECT_EQ(read_gguf_config(after), read_gguf_config(before)) << path;
    expect_same_weights(out, path.string(), Dtype::f32);
  }
  if (tried == 0) GTEST_SKIP() << "no golden GGUF files here";
}

/// By way of our own kinds of tokenizers: the ids are those of before, for texts and around them.
TEST(CliExportGguf, TokenizersOfOurKindsGiveTheSameIds) {
  const std::vector<std::string> texts = {"Hello world", "  two  12345", "it's\n\n\ta", "\xC3\xA9",
                                          ""};
  int tried = 0;
  for (const fs::path& path : golden_gguf_files(".gguf")) {
    const std::string store = cli().fresh("model.h5"), out = cli().fresh("model.gguf");
    if (cli().run({"import", path.string(), "--out", store}).status != 0) continue;
    const ModelFiles before = open_model(store);
    if (!before.tokenizer) continue;
    ++tried;
    cli().must_run({"export", store, "--gguf", out});
    const ModelFiles after = open_model(out);
    ASSERT_NE(after.tokenizer, nullptr) << path;
    for (const std::string& text : texts) {
      EXPECT_EQ(after.tokenizer->encode(text), before.tokenizer->encode(text)) << path << text;
      EXPECT_EQ(after.tokenizer->encode_with_special(text),
                before.tokenizer->encode_with_special(text))
          << path << text;
    }
    const GgufMetadata first = GgufSource(path).metadata(), second = GgufSource(out).metadata();
    EXPECT_EQ(second.text("tokenizer.ggml.model"), first.text("tokenizer.ggml.model"));
    auto types = first.integers("tokenizer.ggml.token_type");
    // A SentencePiece model has a token for what is unknown, which Gemma's files call control.
    constexpr std::int64_t kUnknown = 2, kControl = 3;
    const bool sentencepiece = first.text("tokenizer.ggml.model") == "llama";
    const auto unknown = first.integer("tokenizer.ggml.unknown_token_id");
    if (sentencepiece && types && unknown)
      if (auto& type = types->at(static_cast<std::size_t>(*unknown)); type == kControl)
        type = kUnknown;
    EXPECT_EQ(second.integers("tokenizer.ggml.token_type"), types) << path;
    for (const char* key : {"bos_token_id", "eos_token_id"}) {
      const std::string name = std::string("tokenizer.ggml.") + key;
      if (first.has(name)) {
        EXPECT_EQ(second.integer(name), first.integer(name)) << path << key;
      }
    }
    EXPECT_EQ(second.text("tokenizer.chat_template"), first.text("tokenizer.chat_template"));
  }
  if (tried == 0) GTEST_SKIP() << "no golden GGUF files with tokenizers here";
}

TEST(CliExportGguf, ATokenizerJsonBecomesItsKeys) {
  const std::string store = cli().fresh("model.h5"), out = cli().fresh("model.gguf");
  cli().must_run({"import", golden_path("arch/llama_gqa"), "--out", store, "--tokenizer",
                  cli().ascii_tokenizer()});
  cli().must_run({"export", store, "--gguf", out});
  const GgufMetadata metadata = GgufSource(out).metadata();
  EXPECT_EQ(metadata.text("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(metadata.text("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ(static_cast<Index>(metadata.texts("tokenizer.ggml.tokens")->size()),
            open_model(store).config.vocab_size);
  EXPECT_EQ(metadata.flag("tokenizer.ggml.add_bos_token"), false);
  EXPECT_EQ(open_model(out).tokenizer->encode("A text, 12"),
            open_model(store).tokenizer->encode("A text, 12"));

  const std::string text = read_text(cli().ascii_tokenizer());
  auto json = nlohmann::json::parse(text);
  json["pre_tokenizer"] = {{"type", "Whitespace"}};
  const fs::path other = cli().fresh("other");
  fs::create_directory(other);
  write_text(other / "tokenizer.json", json.dump());
  expect_refused({"export", store, "--gguf", cli().fresh("x.gguf"), "--tokenizer",
                  (other / "tokenizer.json").string()},
                 {"pre_tokenizer", "Whitespace"});
}

TEST(CliExportGguf, BytesAreNoTokenizerForLlamaCpp) {
  const std::string out = cli().fresh("model.gguf");
  const ProcessResult result = cli().must_run({"export", cli().base(), "--gguf", out});
  EXPECT_TRUE(contains(result.out, "notice: a tokenizer of kind \"bytes\" cannot be represented"));
  EXPECT_EQ(GgufSource(out).metadata().text("tokenizer.ggml.model"), "none");
  expect_same_weights(out, cli().base(), Dtype::f16);
}

TEST(CliExportGguf, ALoraScoresAsItDid) {
  for (const std::string& base : {cli().base(), cli().other_base()}) {
    const std::string run = cli().fresh("lora"), out = cli().fresh("lora.gguf");
    cli().must_run(
        cli().config({"base=" + base, "method=lora", "lora.r=2", "optim.lr=0.02", "out=" + run}));
    const auto figures =
        cli().figures({"export", base, "--adapter", run + "/lora.h5", "--gguf", out});
    EXPECT_EQ(figures.at("kind"), "adapter");
    const GgufMetadata metadata = GgufSource(out).metadata();
    EXPECT_EQ(metadata.text("general.type"), "adapter");
    EXPECT_EQ(metadata.text("adapter.type"), "lora");
    EXPECT_EQ(metadata.number("adapter.lora.alpha"), 16);
    const auto score = [&](const Words& adapter) {
      const auto rows =
          cli()
              .figures(Words{"eval", base, "--text", cli().valid_text(), "--context", "64"} +
                       adapter)
              .at("rows");
      return rows.at(0).at("perplexity").get<double>();
    };
    const double trained = score({"--adapter", run + "/lora.h5"});
    EXPECT_NE(trained, score({}));
    EXPECT_NEAR(score({"--adapter", out}), trained, 1e-6 * trained);
  }
}

TEST(CliExportGguf, WhatCannotBeWrittenIsRefusedAndLeavesWhatWasThere) {
  const std::string out = cli().fresh("model.gguf");
  expect_refused({"export", cli().base(), "--gguf", out, "--adapter", cli().adapter()},
                 {"is not a LoRA adapter"});
  expect_refused({"export", cli().base(), "--gguf", out, "--with-code"}, {"--with-code"});
  expect_refused({"export", cli().base(), "--gguf", cli().fresh("missing") + "/model.gguf"},
                 {"missing"});
  EXPECT_NE(cli().run({"export", cli().base()}).status, 0);
  EXPECT_NE(cli().run({"export", cli().base(), "--gguf", out, "--out", out + "x"}).status, 0);
  EXPECT_FALSE(fs::exists(out));
  write_text(out, "mine");
  expect_refused({"export", cli().base(), "--gguf", out}, {"exists already", "--overwrite"});
  EXPECT_EQ(read_text(out), "mine");
  cli().must_run({"export", cli().base(), "--gguf", out, "--overwrite"});
  EXPECT_TRUE(is_gguf(out));
}

TEST(CliExportGguf, NumbersBeyondTheTypeAreRefused) {
  const std::string folder = cli().fresh("large"), out = cli().fresh("model.gguf");
  cli().must_run({"export", cli().base(), "--out", folder});
  const SafetensorsFile file(folder + "/model.safetensors");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const TensorInfo& info : file.tensors())
    tensors.emplace_back(info.name, file.read(info.name));
  for (auto& [name, tensor] : tensors)
    if (name.ends_with("down_proj.weight")) tensor.data()[1] = 1e6F;
  write_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  expect_refused({"export", folder, "--gguf", out}, {"blk.0.ffn_down.weight", "--dtype bf16"});
  EXPECT_FALSE(fs::exists(out));
  cli().must_run({"export", folder, "--gguf", out, "--dtype", "bf16"});
}

}  // namespace
}  // namespace focus
