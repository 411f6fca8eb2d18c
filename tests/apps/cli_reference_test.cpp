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
};
void PrintTo(const Reference& reference, std::ostream* stream) { *stream << reference.name; }

class Perplexity : public testing::TestWithParam<Reference> {};

TEST_P(Perplexity, IsThatOfTransformers) {
  const Reference& wanted = GetParam();
  const fs::path model = shared_folder() / "models" / wanted.model;
  const fs::path text = shared_folder() / "text" / wanted.text;
  for (const fs::path& path : {model, text})
    if (!fs::exists(path))
      GTEST_SKIP() << path << " is not there; FOCUS_SHARED_DIR names the folder of shared data";
  const std::string json = Cli::instance().fresh("eval.json");
  const ProcessResult result =
      Cli::instance()
          .start({"eval", model.string(), "--text", text.string(), "--context",
                  std::to_string(wanted.context), "--stride", std::to_string(wanted.stride),
                  "--threads", "2", "--json", json})
          ->wait(400);
  ASSERT_EQ(result.status, 0) << result.err;
  const auto row = nlohmann::json::parse(read_text(json)).at("rows").at(0);
  EXPECT_NEAR(row.at("perplexity").get<double>() / wanted.perplexity, 1, 1e-3);
}

INSTANTIATE_TEST_SUITE_P(
    Reference, Perplexity,
    testing::Values(Reference{"stories_on_stories", "stories260K", "tinystories/valid_head.txt",
                              512, 256, 4.97435},
                    Reference{"stories_on_a_novel", "stories260K",
                              "novels19/valid/Burnett_Garden_1911.txt.xz", 512, 256, 19.10104},
                    Reference{"novels_on_a_novel", "novels-gpt2",
                              "novels19/valid/Conrad_Almayer_1895.txt.xz", 1024, 512, 77.17455}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace focus
