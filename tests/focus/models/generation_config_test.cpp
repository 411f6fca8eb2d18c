#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "focus/models/side_files.h"
#include "tests/support/notices.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

GenerationConfig read(const std::string& json, const std::string& where = "here") {
  return read_generation_config({{"generation_config.json", json}}, where);
}

TEST(GenerationConfig, WithoutDoSampleItIsGreedyWhateverTheTemperature) {
  SamplingOptions sampling;
  EXPECT_EQ(read(R"({"temperature": 0.6, "top_k": 7, "top_p": 0.9})").apply({}, sampling), "");
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(read(R"({"do_sample": false, "repetition_penalty": 1.25})").apply({}, sampling),
            "repetition_penalty 1.25");
  EXPECT_EQ(sampling.repetition_penalty, 1.25);
}

TEST(GenerationConfig, SamplingTakesItsNumbersAndTransformersOwn) {
  SamplingOptions sampling;
  EXPECT_EQ(read(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9})").apply({}, sampling),
            "temperature 0.6, top_k 50, top_p 0.9");
  EXPECT_EQ(sampling.top_k, 50);
  SamplingOptions bare;
  EXPECT_EQ(read(R"({"do_sample": true, "top_k": 0})").apply({}, bare), "temperature 1");
}

TEST(GenerationConfig, FlagsGoBeforeIt) {
  const GenerationConfig config =
      read(R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "top_k": 20})");
  SamplingOptions sampling;
  EXPECT_EQ(config.apply({.temperature = true}, sampling), "");  // --temperature 0 is greedy
  EXPECT_EQ(sampling.temperature, 0);
  sampling = {.temperature = 0.3, .top_k = 4};
  EXPECT_EQ(config.apply({.temperature = true, .top_k = true}, sampling), "top_p 0.9");
  EXPECT_EQ(sampling.temperature, 0.3);
  EXPECT_EQ(sampling.top_k, 4);
}

TEST(GenerationConfig, RefusesWhatIsNone) {
  for (const char* json : {"[]", "{", R"({"temperature": "hot"})", R"({"top_p": 2})",
                           R"({"eos_token_id": [1, "x"]})", R"({"top_k": -1})"})
    EXPECT_THAT(error_of([&] { read(json); }), HasSubstr("here: generation_config.json")) << json;
}

TEST(GenerationEnds, ThoseOfGenerationConfigGoBeforeTheConfigs) {
  ModelConfig config;
  config.eos_token_ids = {4, 9};
  EXPECT_THAT(generation_ends({}, config, "m"), ElementsAre(4, 9));
  const Notices notices;
  EXPECT_THAT(generation_ends(read(R"({"eos_token_id": [9, 4, 2]})"), config, "m"),
              ElementsAre(9, 4, 2));
  EXPECT_THAT(generation_ends(read(R"({"temperature": 1})"), config, "m"), ElementsAre(4, 9));
  EXPECT_EQ(notices.text(), "");
  EXPECT_THAT(generation_ends(read(R"({"eos_token_id": 9})"), config, "m"), ElementsAre(9));
  EXPECT_THAT(notices.text(), HasSubstr("m: config.json has eos_token_id [4, 9]"));
  // One that was made from the config says nothing of its own.
  EXPECT_THAT(
      generation_ends(read(R"({"_from_model_config": true, "eos_token_id": 4})"), config, "m"),
      ElementsAre(4, 9));
  EXPECT_THAT(generation_ends(read(R"({"eos_token_id": null})"), config, "m"), ElementsAre());
}

}  // namespace
}  // namespace focus
