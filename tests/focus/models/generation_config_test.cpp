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

TEST(GenerationConfig, WhatElseChangesTheTextIsAppliedOrNamed) {
  SamplingOptions sampling;
  EXPECT_EQ(read(R"({"do_sample": true, "top_k": 0, "min_p": 0.1, "suppress_tokens": [3],
                     "bad_words_ids": [[1, 2]], "no_repeat_ngram_size": 2,
                     "stop_strings": "User:"})")
                .apply({}, sampling),
            "temperature 1, min_p 0.1, suppress_tokens (1), bad_words_ids (1), "
            "no_repeat_ngram_size 2, stop_strings [\"User:\"]");
  EXPECT_EQ(sampling.min_p, 0.1);
  EXPECT_THAT(sampling.rules.bad_words_ids, ElementsAre(ElementsAre(1, 2)));
  EXPECT_THAT(read(R"({"stop_strings": ["a", "b"]})").stop_strings, ElementsAre("a", "b"));
  const auto named = [](const char* json) { return read(json).not_applied; };
  EXPECT_THAT(
      named(R"({"num_beams": 3, "length_penalty": 2, "stop_strings": ["a"], "new_key": 1,
                        "sequence_bias": [[[1], 2.0]]})"),
      ElementsAre("length_penalty 2", "new_key 1", "num_beams 3", "sequence_bias [[[1],2.0]]"));
  // What does nothing is not named.
  EXPECT_THAT(named(R"({"num_beams": 1, "length_penalty": 2, "typical_p": 0.5, "use_cache": true,
                        "max_length": 20, "min_length": 0, "stop_strings": null, "pad_token_id": 3,
                        "forced_eos_token_id": [], "transformers_version": "5"})"),
              ElementsAre());
  EXPECT_THAT(named(R"({"do_sample": true, "typical_p": 0.5})"), ElementsAre("typical_p 0.5"));
}

TEST(GenerationConfig, RefusesWhatIsNone) {
  for (const char* json :
       {"[]", "{", R"({"temperature": "hot"})", R"({"top_p": 2})", R"({"eos_token_id": [1, "x"]})",
        R"({"top_k": -1})", R"({"bad_words_ids": [3]})", R"({"bad_words_ids": [[]]})",
        R"({"suppress_tokens": [-1]})", R"({"min_p": 2})", R"({"stop_strings": [1]})"})
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
