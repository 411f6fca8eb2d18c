// GGUF files wherever a model or an adapter is named, against the Hugging Face folder that export
// makes of them.

#include "data/gguf/gguf.h"
#include "focus/models/model_files.h"
#include "layers/gguf_settings.h"
#include "tests/support/cli.h"
#include "tests/support/golden_folders.h"
#include "tests/support/golden_model.h"

namespace focus {
namespace {

class CliGguf : public testing::Test {
 protected:
  void SetUp() override {
    for (const auto& path : golden_gguf_files(".gguf"))
      if (path.filename() == "llama.gguf") gguf_ = path.string();
    if (gguf_.empty()) GTEST_SKIP() << "no gguf/llama.gguf here";
    folder_ = cli().fresh("folder");
    cli().must_run({"export", gguf_, "--out", folder_});
  }
  /// Both give the same run; `words` name neither base nor folder.
  void expect_same(const Words& words) {
    const std::string a = cli().fresh("gguf"), b = cli().fresh("hf");
    cli().must_run(cli().config(Words{"base=" + gguf_, "out=" + a} + words));
    cli().must_run(cli().config(Words{"base=" + folder_, "out=" + b} + words));
    expect_same_run(a, b);
  }
  std::string gguf_, folder_;
};

TEST_F(CliGguf, TrainsAsTheFolderDoes) {
  expect_same({"method=retrofit", "steps=3"});
  expect_same({"method=lora", "lora.r=2", "steps=3"});
  expect_same({"method=full", "steps=2"});
}

TEST_F(CliGguf, FitsAsTheFolderDoes) {
  const std::string a = cli().fresh("a.h5"), b = cli().fresh("b.h5");
  cli().must_run(words("fit {} --text {train} --num-groups 4 --out {}", gguf_, a));
  cli().must_run(words("fit {} --text {train} --num-groups 4 --out {}", folder_, b));
  expect_same_store(a, b);
  // What was fitted on the one goes onto the other.
  const Words eval = "--text {valid} --context 32";
  EXPECT_EQ(cli().rows(words("{} --adapter {}", gguf_, b) + eval),
            cli().rows(words("{} --adapter {}", folder_, a) + eval));
}

TEST_F(CliGguf, OtherCommandsTakeItToo) {
  const auto logits = [&](const std::string& base) {
    const std::string out = cli().fresh("logits.safetensors");
    cli().must_run({"logits", base, "--text", "ab", "--out", out});
    return read_text(out);
  };
  EXPECT_EQ(logits(gguf_), logits(folder_));
  cli().must_run({"leak-test", gguf_});
  cli().must_run(words("speed --step base={} data.context=32 data.batch=1 --repeats 1", gguf_));
  const std::string adapter = cli().fresh("keys.h5");
  cli().must_run(words("fit {} --text {valid} --num-groups 4 --context 32 --tokens 256 --out {}",
                       gguf_, adapter));
  cli().must_run(words("groups {} --adapter {} --text {valid} --context 32 --out {}", gguf_,
                       adapter, cli().fresh("groups")));
}

TEST_F(CliGguf, IsImportedWithItsTokenizerAndSideFiles) {
  const std::string store = cli().fresh("model.h5");
  cli().must_run({"import", gguf_, "--out", store});
  const auto file = cli().figures({"info", gguf_}), imported = cli().figures({"info", store}),
             folder = cli().figures({"info", folder_});
  EXPECT_EQ(file.at("kind"), "GGUF file");
  for (const char* fact : {"model_fingerprint", "tokenizer_fingerprint", "parameters"}) {
    EXPECT_EQ(imported.at(fact), file.at(fact)) << fact;
    EXPECT_EQ(folder.at(fact), file.at(fact)) << fact;
  }
  EXPECT_TRUE(contains(file.at("tensors").get<std::string>(), "Q8_0 "));
  const std::string again = cli().fresh("again");
  cli().must_run({"export", store, "--out", again});
  EXPECT_EQ(snapshot(again), snapshot(folder_));
  EXPECT_TRUE(read_json(again + "/generation_config.json").contains("eos_token_id"));
}

TEST_F(CliGguf, GenerationIsThatOfTheFolder) {
  const Words words = {"--prompt", "It was", "--max-new-tokens", "12"};
  EXPECT_EQ(cli().must_run(Words{"generate", gguf_} + words).out,
            cli().must_run(Words{"generate", folder_} + words).out);
}

TEST_F(CliGguf, AnAdapterGoesOntoItsBase) {
  const fs::path adapter = fs::path(gguf_).replace_filename("llama_lora.gguf");
  if (!fs::exists(adapter)) GTEST_SKIP() << adapter;
  EXPECT_EQ(cli().figures({"info", adapter.string()}).at("kind"), "GGUF adapter");
  const Words text = "--text {valid} --attention dense", on = {"--adapter", adapter.string()};
  const double with = cli().perplexity(Words{gguf_} + text + on);
  EXPECT_NE(with, cli().perplexity(Words{gguf_} + text));
  EXPECT_EQ(with, cli().perplexity(Words{folder_} + text + on));
}

TEST_F(CliGguf, RefusesInALine) {
  const std::string wrong = cli().fresh("wrong.gguf");
  write_text(wrong, "GGML");
  expect_refused({"info", wrong}, {"wrong.gguf", "not a GGUF file"});
  const std::string whole = read_text(gguf_);
  write_text(wrong, whole.substr(0, whole.size() / 2));
  for (const Words& command : {words("eval {} --text {valid}", wrong),
                               words("import {} --out {}", wrong, cli().fresh("x.h5")),
                               cli().config({"base=" + wrong, "out=" + cli().fresh("run")})})
    expect_refused(command, {"beyond the end of the file"});
  const fs::path adapter = fs::path(gguf_).replace_filename("llama_lora.gguf");
  if (!fs::exists(adapter)) return;
  const std::string peft = cli().fresh("peft");
  cli().must_run(words("export {} --adapter {} --out {}", gguf_, adapter, peft));
  EXPECT_TRUE(fs::exists(peft + "/adapter_config.json")) << "a LoRA is PEFT's folder";
  expect_refused(words("eval {} --text {valid}", adapter), {"as --adapter"});
  expect_refused(words("eval {other} --adapter {} --text {valid}", adapter),
                 {"general.architecture is \"llama\", expected \"gpt2\""});
  expect_refused(words("eval {} --adapter {} --text {valid}", gguf_, gguf_),
                 {"general.type is \"model\", expected \"adapter\""});
}

// `focus export --gguf`: models and LoRAs as llama.cpp loads them, and the way back.

/// What a GGUF file has no key for.
ModelConfig without_unsaid(ModelConfig config) {
  config.bos_token_id.reset();
  config.eos_token_ids.clear();
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
      expect_parts(result.err, {"cannot represent"});
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
    for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"})
      if (first.has(key)) {
        EXPECT_EQ(second.integer(key), first.integer(key)) << path << key;
      }
    EXPECT_EQ(second.text("tokenizer.chat_template"), first.text("tokenizer.chat_template"));
  }
  if (tried == 0) GTEST_SKIP() << "no golden GGUF files with tokenizers here";
}

TEST(CliExportGguf, ATokenizerJsonBecomesItsKeys) {
  const std::string folder = model_folder(), out = cli().fresh("model.gguf");
  cli().must_run({"export", folder, "--gguf", out});
  const GgufMetadata metadata = GgufSource(out).metadata();
  EXPECT_EQ(metadata.text("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(metadata.text("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_EQ(static_cast<Index>(metadata.texts("tokenizer.ggml.tokens")->size()),
            open_model(folder).config.vocab_size);
  EXPECT_EQ(metadata.flag("tokenizer.ggml.add_bos_token"), false);
  EXPECT_EQ(open_model(out).tokenizer->encode("A text, 12"),
            open_model(folder).tokenizer->encode("A text, 12"));
  set_json(folder + "/tokenizer.json", "pre_tokenizer", {{"type", "Whitespace"}});
  expect_refused({"export", folder, "--gguf", cli().fresh("x.gguf")},
                 {"pre_tokenizer", "Whitespace"});
}

TEST(CliExportGguf, BytesAreNoTokenizerForLlamaCpp) {
  const std::string out = cli().fresh("model.gguf");
  expect_parts(cli().must_run(words("export {base} --gguf {}", out)).out,
               {"notice: a tokenizer of kind \"bytes\" cannot be represented"});
  EXPECT_EQ(GgufSource(out).metadata().text("tokenizer.ggml.model"), "none");
  expect_same_weights(out, cli().base(), Dtype::f16);
}

TEST(CliExportGguf, ALoraScoresAsItDid) {
  for (const std::string& base : {cli().base(), cli().other_base()}) {
    const std::string run = cli().fresh("lora"), out = cli().fresh("lora.gguf");
    cli().must_run(
        cli().config(words("base={} method=lora lora.r=2 optim.lr=0.02 out={}", base, run)));
    const auto figures =
        cli().figures(words("export {} --adapter {}/lora.h5 --gguf {}", base, run, out));
    EXPECT_EQ(figures.at("kind"), "adapter");
    const GgufMetadata metadata = GgufSource(out).metadata();
    EXPECT_EQ(metadata.text("general.type"), "adapter");
    EXPECT_EQ(metadata.text("adapter.type"), "lora");
    EXPECT_EQ(metadata.number("adapter.lora.alpha"), 16);
    const Words eval = words("{} --text {valid} --context 64", base);
    const double trained = cli().perplexity(eval + words("--adapter {}/lora.h5", run));
    EXPECT_NE(trained, cli().perplexity(eval));
    EXPECT_NEAR(cli().perplexity(eval + Words{"--adapter", out}), trained, 1e-6 * trained);
  }
}

TEST(CliExportGguf, WhatCannotBeWrittenIsRefusedAndLeavesNothing) {
  const std::string out = cli().fresh("model.gguf");
  const Words command = words("export {base} --gguf {}", out);
  expect_refused(command + "--adapter {adapter}", {"is not a LoRA adapter"});
  expect_refused(command + "--with-code", {"--with-code"});
  EXPECT_NE(cli().run("export {base}").status, 0);
  EXPECT_NE(cli().run(command + Words{"--out", out + "x"}).status, 0);
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliExportGguf, NumbersBeyondTheTypeAreRefused) {
  const std::string folder = model_folder(), out = cli().fresh("model.gguf");
  change_weights(folder, [](const std::string& name, Tensor& tensor) {
    if (name.ends_with("down_proj.weight")) tensor.data()[1] = 1e6F;
  });
  expect_refused({"export", folder, "--gguf", out}, {"blk.0.ffn_down.weight", "--dtype bf16"});
  EXPECT_FALSE(fs::exists(out));
  cli().must_run({"export", folder, "--gguf", out, "--dtype", "bf16"});
}

}  // namespace
}  // namespace focus
