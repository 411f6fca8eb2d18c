#include <cstdlib>

#include "tests/support/cli.h"

// Perplexities of published models on real texts, as transformers gives them.
namespace focus {
namespace {

fs::path shared_folder() {
  const char* named = std::getenv("FOCUS_SHARED_DIR");
  return fs::path(named != nullptr && *named != '\0' ? named : FOCUS_SOURCE_DIR "/../shared") /
         "data";
}

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

class Perplexity : public testing::TestWithParam<Reference> {};

TEST_P(Perplexity, IsThatOfTransformers) {
  const Reference& wanted = GetParam();
  const fs::path model = shared_folder() / "models" / wanted.model;
  const fs::path text = shared_folder() / "text" / wanted.text;
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
    path = Cli::instance().fresh("text.txt");
    write_text(path, kept);
  }
  const std::string json = Cli::instance().fresh("eval.json");
  Words command = {"eval",      model.string(),
                   "--text",    path,
                   "--context", std::to_string(wanted.context),
                   "--stride",  std::to_string(wanted.stride),
                   "--threads", "2",
                   "--bos",     "always",  // as they were measured
                   "--json",    json};
  if (!wanted.tokenizer.empty())
    command =
        command + Words{"--tokenizer", (shared_folder() / "models" / wanted.tokenizer).string()};
  const ProcessResult result = Cli::instance().start(command + wanted.more)->wait(400);
  ASSERT_EQ(result.status, 0) << result.err;
  const auto row = nlohmann::json::parse(read_text(json)).at("rows").at(0);
  EXPECT_NEAR(row.at("perplexity").get<double>() / wanted.perplexity, 1, 2e-4);
}

/// The first 200 stories, each alone, cut at the model's context.
Words stories(int context) {
  return {"--separator", "<|endoftext|>", "--max-documents",
          "200",         "--max-tokens",  std::to_string(context)};
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
  const fs::path model = shared_folder() / "models" / wanted.model;
  NEED_SHARED(model);
  Words command = {"generate", model.string(), "--prompt", wanted.prompt, "--max-new-tokens", "48"};
  if (!wanted.tokenizer.empty())
    command =
        command + Words{"--tokenizer", (shared_folder() / "models" / wanted.tokenizer).string()};
  const ProcessResult result = Cli::instance().start(command)->wait(120);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(contains(result.out, wanted.text)) << result.out;
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
