#include "apps/api.h"

#include <gtest/gtest.h>

#include "tests/support/byte_model.h"

namespace focus::app {
namespace {

using Json = nlohmann::json;

const LoadedModel& model() {
  static const LoadedModel made = byte_model();
  return made;
}

ApiRequest read(const std::string& fields, bool chat = false) {
  return read_api_request(chat, (chat ? "{" : R"({"prompt": "ab", )") + fields + "}", model());
}

TEST(ApiRequest, FieldsAreReadAndTheOthersSuitTheModel) {
  const ApiRequest plain = read(R"("user": null)");
  EXPECT_EQ(plain.prompts, (std::vector<std::vector<std::int32_t>>{{'a', 'b'}}));
  EXPECT_EQ(plain.options.max_new_tokens, 16);
  EXPECT_EQ(plain.options.sampling.temperature, 0);
  EXPECT_FALSE(plain.options.top_logprobs || plain.options.prompt_logprobs || plain.echo ||
               plain.stream || plain.stream_usage);
  EXPECT_NE(plain.options.seed, read(R"("user": null)").options.seed);
  const ApiRequest full = read(
      R"("model": "x", "max_tokens": 3, "temperature": 0.5, "top_p": 0.9, "min_p": 0.1, "top_k": 7,
         "seed": 12, "stop": ["x", "yz"], "logit_bias": {"65": -100, "66": 1.5}, "n": 1,
         "logprobs": 2, "echo": true, "stream": true, "stream_options": {"include_usage": true},
         "user": "me", "frequency_penalty": 0, "presence_penalty": 0.0, "best_of": 1,
         "suffix": null, "repetition_penalty": 1.2)");
  EXPECT_EQ(full.options.max_new_tokens, 3);
  EXPECT_EQ(full.options.sampling.temperature, 0.5);
  EXPECT_EQ(full.options.sampling.top_p, 0.9);
  EXPECT_EQ(full.options.sampling.min_p, 0.1);
  EXPECT_EQ(full.options.sampling.top_k, 7);
  EXPECT_EQ(full.options.sampling.repetition_penalty, 1.2);
  EXPECT_EQ(full.options.seed, 12u);
  EXPECT_EQ(full.options.until, (std::vector<std::string>{"x", "yz"}));
  EXPECT_EQ(full.options.logit_bias,
            (std::vector<std::pair<std::int32_t, Real>>{{65, Real(-100)}, {66, Real(1.5)}}));
  EXPECT_EQ(full.options.top_logprobs, 2);
  EXPECT_TRUE(full.options.prompt_logprobs && full.echo && full.stream && full.stream_usage);
  EXPECT_EQ(read(R"("stop": "x")").options.until, std::vector<std::string>{"x"});
  EXPECT_FALSE(read(R"("echo": true)").options.prompt_logprobs);
}

TEST(ApiRequest, PromptsAreTextsOrIdsOneOrSeveral) {
  const auto prompts = [](const std::string& json) {
    return read_api_request(false, R"({"prompt": )" + json + "}", model()).prompts;
  };
  using Prompts = std::vector<std::vector<std::int32_t>>;
  EXPECT_EQ(prompts(R"("a")"), (Prompts{{'a'}}));
  EXPECT_EQ(prompts("[1, 2]"), (Prompts{{1, 2}}));
  EXPECT_EQ(prompts(R"(["a", "bc"])"), (Prompts{{'a'}, {'b', 'c'}}));
  EXPECT_EQ(prompts("[[1], [2, 3]]"), (Prompts{{1}, {2, 3}}));
}

TEST(ApiRequest, WhatIsWrongIsSaidInALine) {
  for (const auto& [fields, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"("temperature": "hot")", "request.temperature: expected a number, found string"},
           {R"("temperature": -1)", "temperature must be 0 (greedy) or more"},
           {R"("top_p": 0)", "top_p must be in (0, 1]"},
           {R"("min_p": 2)", "min_p"},
           {R"("top_k": 1.5)", "request.top_k: expected a whole number"},
           {R"("max_tokens": -1)", "request.max_tokens: -1 is not in the range"},
           {R"("seed": "x")", "request.seed"},
           {R"("stop": [1])", "request.stop[0]: expected a string"},
           {R"("stop": "")", "request.stop: an empty text"},
           {R"("stop": 5)", "request.stop: expected a list"},
           {R"("stop": ["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6","7"])",
            "at most 16"},
           {R"("logit_bias": [1])", "request.logit_bias: expected an object"},
           {R"("logit_bias": {"a": 1})", "the id of a token"},
           {R"("logit_bias": {"256": 1})", "the id of a token"},
           {R"("logit_bias": {"99999999999999999999": 1})", "the id of a token"},
           {R"("logit_bias": {"1": 101})", "from -100 to 100"},
           {R"("n": 2)", "request.n: only 1 is supported, found 2"},
           {R"("suffix": "x")", "request.suffix"},
           {R"("presence_penalty": 0.5)", "request.presence_penalty: only 0"},
           {R"("logprobs": true)", "request.logprobs"},
           {R"("logprobs": 21)", "request.logprobs: 21 is not in the range 0 to 20"},
           {R"("stream": 1)", "request.stream: expected true or false"},
           {R"("stream_options": {"include_usage": 1})", "request.stream_options.include_usage"},
           {R"("model": 1)", "request.model: expected a string"},
           {R"("messages": [])", "unknown field \"messages\""},
           {R"("top_logprobs": 1)", "unknown field"},
           {R"("echo": true, "echo": true)", "echo"}})
    try {
      read(fields);
      ADD_FAILURE() << fields;
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 400) << fields;
      const std::string line = error.what();
      EXPECT_NE(line.find(part), std::string::npos) << line;
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      EXPECT_EQ(Json::parse(error.body())["error"]["message"], line);
    }
  for (const char* body :
       {"", "[]", "1", "{}", R"({"prompt": ""})", R"({"prompt": []})", R"({"prompt": [[]]})",
        R"({"prompt": [256]})", R"({"prompt": [-1]})", R"({"prompt": [1, "a"]})",
        R"({"prompt": 1})", R"({"prompt": ["a", "b"], "stream": true})", "{\"prompt\": \"\xFF\"}"})
    EXPECT_THROW(read_api_request(false, body, model()), ApiError) << body;
  EXPECT_THROW(read_api_request(false, std::string(100000, '['), model()), ApiError);
  for (const char* fields :
       {R"("messages": [])", R"("messages": "a")", R"("messages": [{"content": "a"}])",
        R"("messages": [{"role": "user", "content": 1}])", R"("prompt": "a")",
        R"("messages": [{"role": "user", "content": [{"type": "image_url"}]}])"})
    EXPECT_THROW(read(fields, true), ApiError) << fields;
  for (const int size : {129, 40'000}) try {
      read_api_request(false, Json({{"prompt", std::string(size, 'a')}}).dump(), model());
      ADD_FAILURE();
    } catch (const ApiError& error) {
      EXPECT_EQ(error.code, "context_length_exceeded");
      EXPECT_EQ(Json::parse(error.body())["error"]["code"], "context_length_exceeded");
      EXPECT_EQ(std::string(error.what()).find("bytes") != std::string::npos, size == 40'000);
    }
}

TEST(ApiAnswer, LogProbabilitiesOfEveryToken) {
  const ApiRequest request = read(R"("echo": true, "logprobs": 1)");
  const ApiAnswer answer(request, *model().tokenizer, "tiny", "hard:2");
  Generated made;
  made.ids = {'c', 'd'};
  made.text = "cd";
  made.stop = "until";
  made.prompt_tokens = 2;
  made.reused_tokens = 1;
  made.prompt_logprobs = {{'b', -1.5, {{'x', -0.5}}}};
  made.logprobs = {{'c', -0.25, {{'c', -0.25}}}, {'d', -INFINITY, {{'e', 0}}}};
  const Json json = Json::parse(answer.whole({&made, 1})), choice = json["choices"][0];
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(choice["text"], "abcd");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["logprobs"], Json::parse(R"({
      "tokens": ["a", "b", "c", "d"], "token_logprobs": [null, -1.5, -0.25, -9999.0],
      "top_logprobs": [null, {"x": -0.5, "b": -1.5}, {"c": -0.25}, {"e": 0.0, "d": -9999.0}],
      "text_offset": [0, 1, 2, 3]})"));
  EXPECT_EQ(json["usage"], Json::parse(R"({"prompt_tokens": 2, "completion_tokens": 2,
      "total_tokens": 4, "prompt_tokens_details": {"cached_tokens": 1}})"));
  EXPECT_EQ(choice["focus"], Json::parse(R"({"attention": "hard:2", "density": null,
      "prompt_tokens_per_second": 0.0, "tokens_per_second": 0.0, "tokens_per_pass": 0.0})"));
  made.passes = 1;
  made.keys_read = 0.25;
  EXPECT_EQ(Json::parse(answer.whole({&made, 1}))["choices"][0]["focus"]["density"], 0.25);
  made.stop = "positions";
  EXPECT_EQ(Json::parse(answer.whole({&made, 1}))["choices"][0]["finish_reason"], "length");
}

}  // namespace
}  // namespace focus::app
