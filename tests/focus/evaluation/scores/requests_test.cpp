#include "focus/evaluation/scores/requests.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "focus/models/generation.h"
#include "tests/support/byte_model.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;

std::vector<ScoreRequest> read(const std::string& text) {
  const TempFolder folder;
  write_text(folder / "in.jsonl", text);
  return read_requests(folder / "in.jsonl");
}

constexpr const char* kGood = R"({"type":"loglikelihood","context":"a","continuation":"b"})";

TEST(Requests, AreReadInEveryForm) {
  const auto requests =
      read(std::string(kGood) +
           "\r\n\n"
           R"({"type":"loglikelihood_rolling","text":"abc","id":[1,"x"]})"
           "\n"
           R"({"type":"generate_until","context":"a","until":"\n","max_gen_toks":3,"id":7})"
           "\n"
           R"({"type":"generate_until","context":"a","until":["x","y"]})");
  ASSERT_EQ(requests.size(), 4u);
  EXPECT_EQ(requests[0].continuation, "b");
  EXPECT_EQ(requests[0].id, "");
  EXPECT_EQ(requests[1].context, "abc");
  EXPECT_EQ(requests[1].id, R"([1,"x"])");
  EXPECT_TRUE(requests[1].where.ends_with("in.jsonl:3")) << requests[1].where;
  EXPECT_EQ(requests[2].until, std::vector<std::string>{"\n"});
  EXPECT_EQ(requests[2].max_gen_toks, 3);
  EXPECT_EQ(requests[3].until, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(requests[3].max_gen_toks, 256);
}

TEST(Requests, AreRefusedWithTheLineThatIsWrong) {
  const std::string good = std::string(kGood) + "\n";
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {"", {"in.jsonl", "no requests"}},
      {"\n \n", {"in.jsonl", "no requests"}},
      {good + "{\"type\":", {"in.jsonl:2", "not valid JSON"}},
      {good + "[1]", {"in.jsonl:2", "an object"}},
      {good + R"({"type":"loglikelihood","context":"a"})",
       {"in.jsonl:2", "\"continuation\" is missing"}},
      {R"({"context":"a","continuation":"b"})",
       {"in.jsonl:1", "\"type\" is missing", "loglikelihood"}},
      {R"({"type":"guess","context":"a"})", {"in.jsonl:1", "guess", "generate_until"}},
      {R"({"type":"loglikelihood","context":7,"continuation":"b"})",
       {"in.jsonl:1", "context", "a string"}},
      {R"({"type":"loglikelihood","context":"a","continuation":""})",
       {"in.jsonl:1", "continuation is empty"}},
      {R"({"type":"loglikelihood","context":"a","continuation":"b","untill":"c"})",
       {"in.jsonl:1", "\"untill\" is not a field"}},
      {good + R"({"type":"loglikelihood","context":"\ud800","continuation":"b"})",
       {"in.jsonl:2", "surrogate"}},
      {good + "{\"type\":\"loglikelihood\",\"context\":\"\xFF\",\"continuation\":\"b\"}",
       {"in.jsonl:2", "not valid JSON"}},
      {R"({"type":"generate_until","context":"a","max_gen_toks":0})",
       {"in.jsonl:1", "max_gen_toks"}}};
  for (const auto& [text, parts] : cases) {
    const std::string said = error_of([&] { read(text); });
    EXPECT_THAT(said, Not(HasSubstr("\n")));
    for (const std::string& part : parts) EXPECT_THAT(said, HasSubstr(part));
  }
}

TEST(Requests, AreAnsweredInTheirOrder) {
  LoadedModel model = byte_model_with_focus();
  const auto requests =
      read(R"({"type":"loglikelihood_rolling","text":"0123456789"})"
           "\n"
           R"({"type":"loglikelihood","context":"0123","continuation":"45"})"
           "\n"
           R"({"type":"generate_until","context":"0123","max_gen_toks":6})"
           "\n"
           R"({"type":"loglikelihood","context":"","continuation":"0123456789"})"
           "\n"
           R"({"type":"loglikelihood","context":"aaaaaaaaaaaaaaaaaaaa0123","continuation":"45"})");
  ScoreOptions options;
  options.max_length = 10;
  const auto answers = answer_requests(model, {}, requests, options);
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers[0].tokens, 10);
  EXPECT_NEAR(answers[0].log_likelihood, answers[3].log_likelihood, 1e-5);
  EXPECT_EQ(answers[2].tokens, 6);
  EXPECT_EQ(answers[2].stop, "max-new-tokens");
  EXPECT_EQ(answers[1].cut, 0);
  EXPECT_EQ(answers[4].cut, 15);
  EXPECT_EQ(answers[4].tokens, 2);
  for (const ScoreAnswer& answer : answers) EXPECT_EQ(answer.pairs_touched, 0);

  const auto soft = answer_requests(
      model, {.kind = AttentionKind::soft, .balance = Balance::carried}, requests, options);
  EXPECT_NE(soft[3].log_likelihood, answers[3].log_likelihood);
  EXPECT_EQ(soft[1].pairs_touched, 0);  // five tokens inside a window of 4
  EXPECT_GT(soft[3].pairs_touched, 0);
  EXPECT_EQ(soft[1].pairs, model.decoder->config().num_hidden_layers * 5 * 6 / 2);
}

TEST(Requests, AGenerationEndsBeforeWhatItIsToEndWith) {
  LoadedModel model = byte_model();
  const auto answer = [&](const std::string& until) {
    nlohmann::json request = {
        {"type", "generate_until"}, {"context", "once"}, {"max_gen_toks", 12}};
    if (!until.empty()) request["until"] = {"never", until};
    return answer_requests(model, {}, read(request.dump()), {}).at(0);
  };
  const std::string text = answer("").text;
  ASSERT_EQ(answer("").tokens, 12);
  // The first character that has not come before, so that the text ends there and no earlier.
  std::size_t at = 1;
  while (at < text.size() && (text.find(text[at]) < at || text[at] < ' ' || text[at] > '~')) ++at;
  ASSERT_LT(at, text.size()) << "no character to end with in " << text;
  const ScoreAnswer ended = answer(text.substr(at, 1));
  EXPECT_EQ(ended.text, text.substr(0, at));
  EXPECT_EQ(ended.stop, "until");
  EXPECT_LT(ended.tokens, 12);

  // What may be the beginning of its end is not told before it is known not to be.
  const std::vector<std::int32_t> prompt = model.prompt_ids("once");
  std::string told;
  const Generated done =
      generate(generation_model(model, {}, std::nullopt), prompt,
               {.max_new_tokens = 12, .until = {text.substr(at, 1) + "?", text.substr(at, 2)}},
               [&](const std::string& part) {
                 told += part;
                 return true;
               });
  EXPECT_EQ(told, text.substr(0, at));
  EXPECT_EQ(done.text, told);
}

TEST(Requests, WhatCannotBeAnsweredIsSaidBeforeAnythingIsComputed) {
  LoadedModel model = byte_model_with_focus();
  const AttentionSpec leaky{.kind = AttentionKind::soft, .balance = Balance::sequence};
  ScoreOptions options;
  options.max_length = 8;
  for (const auto& [line, spec, part] :
       std::initializer_list<std::tuple<const char*, AttentionSpec, const char*>>{
           {R"({"type":"loglikelihood","context":"a","continuation":"123456789"})", {}, "9 tokens"},
           {R"({"type":"loglikelihood_rolling","text":""})", {}, "no tokens"},
           {R"({"type":"generate_until","context":"a","max_gen_toks":8})", {}, "no room"},
           {R"({"type":"generate_until","context":"a","max_gen_toks":2})", leaky,
            "cannot generate"}}) {
    const auto requests = read(std::string(kGood) + "\n" + line);
    EXPECT_THAT(error_of([&] {
                  answer_requests(model, spec, requests, options,
                                  [](double) { ADD_FAILURE() << "computed"; });
                }),
                AllOf(HasSubstr("in.jsonl:2"), HasSubstr(part)));
  }
}

TEST(AnswerLine, HoldsTheIdAndWhatTheTypeHas) {
  ScoreRequest request{.id = R"({"task":"x"})", .where = "here"};
  const auto json = [&](const ScoreAnswer& answer) {
    return nlohmann::json::parse(answer_line(request, answer));
  };
  EXPECT_EQ(json({.log_likelihood = -1.5,
                  .is_greedy = false,
                  .tokens = 2,
                  .pairs = 6,
                  .pairs_touched = 0.25}),
            nlohmann::json::parse(R"({"id":{"task":"x"},"type":"loglikelihood","tokens":2,
                "log_likelihood":-1.5,"is_greedy":false,"pairs":6,"pairs_touched":0.25})"));
  EXPECT_EQ(json({.cut = 3}).at("cut"), 3);
  request = {.type = ScoreRequest::Type::generate_until};
  EXPECT_EQ(json({.text = "\"x", .stop = "until", .tokens = 4}),
            nlohmann::json::parse(R"({"type":"generate_until","text":"\"x","stop":"until",
                "tokens":4,"pairs_touched":0.0})"));
}

}  // namespace
}  // namespace focus
