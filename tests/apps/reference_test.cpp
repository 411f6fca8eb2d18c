#include "tests/support/cli.h"
#include "tests/support/golden_folders.h"

// Perplexities of published models on real texts, as transformers gives them.
namespace focus {
namespace {

const fs::path kShared = shared_folder() / "data";

struct Reference {
  std::string name, model, text;
  int context, stride;
  double perplexity;
  std::string tokenizer = "";  // below models/; the model's own where empty
  Words more = {};
  // Characters that the tokenizer's vocabulary lacks: transformers' own Llama class, which the
  // figure was made with, drops them, tokenizer.json makes <unk> of them.
  Words dropped = {};
};
void PrintTo(const Reference& reference, std::ostream* stream) { *stream << reference.name; }

/// Skips the test where one of them is missing.
#define NEED_SHARED(...)                     \
  for (const fs::path& path : {__VA_ARGS__}) \
    if (!fs::exists(path))                   \
  GTEST_SKIP() << path << " is not there; FOCUS_SHARED_DIR names the folder of shared data"

/// The option that takes another model's tokenizer, where one is named.
Words tokenizer_of(const std::string& name) {
  return name.empty() ? Words() : words("--tokenizer {}", (kShared / "models" / name).string());
}

class Perplexity : public testing::TestWithParam<Reference> {};

TEST_P(Perplexity, IsThatOfTransformers) {
  const Reference& wanted = GetParam();
  const fs::path model = kShared / "models" / wanted.model;
  const fs::path text = kShared / "text" / wanted.text;
  NEED_SHARED(model, text);
#ifdef FOCUS_SANITIZED
  if (wanted.model == "novels-gpt2")
    GTEST_SKIP() << "a quarter of an hour with the sanitizers; the release build runs it";
#endif
  std::string path = text.string();
  if (!wanted.dropped.empty()) {
    std::string kept = read_text(path);
    for (const std::string& part : wanted.dropped)
      for (std::size_t at; (at = kept.find(part)) != std::string::npos;)
        kept.erase(at, part.size());
    path = cli().fresh("text.txt");
    write_text(path, kept);
  }
  const std::string json = cli().fresh("eval.json");
  Words command =
      words("eval {} --text {} --context {} --stride {} --threads 2 --json {}", model.string(),
            path, std::to_string(wanted.context), std::to_string(wanted.stride), json) +
      "--bos always" + wanted.more;  // as they were measured
  const ProcessResult result = cli().start(command + tokenizer_of(wanted.tokenizer))->wait(400);
  ASSERT_EQ(result.status, 0) << result.err;
  const double perplexity = read_json(json).at("rows").at(0).at("perplexity");
  EXPECT_NEAR(perplexity / wanted.perplexity, 1, 2e-4);
}

/// The first 200 stories, each alone, cut at the model's context.
Words stories(int context) {
  return words("--separator <|endoftext|> --max-documents 200 --max-tokens {}",
               std::to_string(context));
}

INSTANTIATE_TEST_SUITE_P(
    Reference, Perplexity,
    testing::Values(Reference{"stories_on_stories", "stories260K", "tinystories/valid_head.txt",
                              512, 256, 4.97435},
                    Reference{"stories_on_a_novel", "stories260K",
                              "novels19/valid/Burnett_Garden_1911.txt.xz", 512, 256, 19.10104},
                    Reference{"novels_on_a_novel", "novels-gpt2",
                              "novels19/valid/Conrad_Almayer_1895.txt.xz", 1024, 512, 77.17455},
                    Reference{"novels_on_stories", "novels-gpt2", "tinystories/valid_head.txt",
                              1024, 512, 81.54259},
                    Reference{"stories260k_on_single_stories", "stories260K",
                              "tinystories/stream_eot.txt", 512, 512, 4.004, "", stories(512)},
                    Reference{"tiny1m_on_single_stories", "tiny1m", "tinystories/stream_eot.txt",
                              256, 256, 3.331, "stories260K/tok512.model", stories(256)},
                    Reference{"tinystories_656k_on_single_stories",
                              "tinystories-656k",
                              "tinystories/stream_eot.txt",
                              512,
                              512,
                              22.311,
                              "",
                              stories(512),
                              {"\u2019", "\u201c", "\u201d"}}),
    [](const auto& test) { return test.param.name; });

struct Continuation {
  std::string name, model, prompt, text;
  std::string tokenizer = "";
};
void PrintTo(const Continuation& continuation, std::ostream* stream) {
  *stream << continuation.name;
}

class Generate : public testing::TestWithParam<Continuation> {};

TEST_P(Generate, GoesOnReadably) {
  const Continuation& wanted = GetParam();
  const fs::path model = kShared / "models" / wanted.model;
  NEED_SHARED(model);
  const Words command =
      words("generate {} --prompt {} --max-new-tokens 48", model.string(), wanted.prompt);
  const ProcessResult result = cli().start(command + tokenizer_of(wanted.tokenizer))->wait(120);
  ASSERT_EQ(result.status, 0) << result.err;
  expect_parts(result.out, {wanted.text});
}

INSTANTIATE_TEST_SUITE_P(
    Reference, Generate,
    testing::Values(
        Continuation{"stories260k", "stories260K", "Once upon a time",
                     ", there was a little girl named Lily. She loved to play outside in the park. "
                     "One day, she saw a big, red ball."},
        Continuation{"tiny1m", "tiny1m", "Once upon a time",
                     ", there was a little girl named Lily. She loved to play outside",
                     "stories260K/tok512.model"},
        Continuation{"tinystories_656k", "tinystories-656k", "Once upon a time",
                     ", a little girl named Lily lived in a small house with her mom"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace focus
