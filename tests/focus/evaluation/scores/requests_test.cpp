#include "focus/evaluation/scores/requests.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/byte_model.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

class Requests : public testing::Test {
 protected:
  std::vector<ScoreRequest> read(const std::string& text) {
    write_text(folder_ / "in.jsonl", text);
    return read_requests(folder_ / "in.jsonl");
  }
  /// What the file is refused with.
  std::string refusal(const std::string& text) {
    try {
      read(text);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  }
  void expect_refused(const std::string& text, const std::vector<std::string>& parts) {
    const std::string said = refusal(text);
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    for (const std::string& part : parts)
      EXPECT_NE(said.find(part), std::string::npos) << "no \"" << part << "\" in: " << said;
  }

  TempFolder folder_;
};

constexpr const char* kGood = R"({"type":"loglikelihood","context":"a","continuation":"b"})";

TEST_F(Requests, AreReadInEveryForm) {
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

TEST_F(Requests, AreRefusedWithTheLineThatIsWrong) {
  const std::string good = std::string(kGood) + "\n";
  expect_refused("", {"in.jsonl", "no requests"});
  expect_refused("\n \n", {"in.jsonl", "no requests"});
  expect_refused(good + "{\"type\":", {"in.jsonl:2", "not valid JSON"});
  expect_refused(good + "[1]", {"in.jsonl:2", "an object"});
  expect_refused(good + R"({"type":"loglikelihood","context":"a"})",
                 {"in.jsonl:2", "\"continuation\" is missing"});
  expect_refused(R"({"context":"a","continuation":"b"})",
                 {"in.jsonl:1", "\"type\" is missing", "loglikelihood"});
  expect_refused(R"({"type":"guess","context":"a"})", {"in.jsonl:1", "guess", "generate_until"});
  expect_refused(R"({"type":"loglikelihood","context":7,"continuation":"b"})",
                 {"in.jsonl:1", "context", "a string"});
  expect_refused(R"({"type":"loglikelihood","context":"a","continuation":""})",
                 {"in.jsonl:1", "continuation is empty"});
  expect_refused(R"({"type":"loglikelihood","context":"a","continuation":"b","untill":"c"})",
                 {"in.jsonl:1", "\"untill\" is not a field"});
  expect_refused(good + R"({"type":"loglikelihood","context":"\ud800","continuation":"b"})",
                 {"in.jsonl:2", "surrogate"});
  expect_refused(good + "{\"type\":\"loglikelihood\",\"context\":\"\xFF\",\"continuation\":\"b\"}",
                 {"in.jsonl:2", "not valid JSON"});
  expect_refused(R"({"type":"generate_until","context":"a","max_gen_toks":0})",
                 {"in.jsonl:1", "max_gen_toks"});
}

TEST_F(Requests, AreAnsweredInTheirOrder) {
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
  EXPECT_TRUE(soft[3].kl.empty());
}

TEST_F(Requests, AReferenceGivesTheDivergenceOfEveryScoredToken) {
  LoadedModel model = byte_model_with_focus(), same = byte_model(), other = byte_model("llama", 2);
  std::string lines;
  for (int i = 0; i < 150; ++i)  // more than one block
    lines += nlohmann::json({{"type", "loglikelihood"},
                             {"context", "0123456789" + std::to_string(i)},
                             {"continuation", "45"}})
                 .dump() +
             "\n";
  const auto requests = read(lines);
  const auto alone = answer_requests(model, {}, requests, {});
  const auto dense = answer_requests(model, {}, requests, {}, &same);
  const auto across = answer_requests(model, {}, requests, {}, &other);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_NEAR(dense[i].log_likelihood, alone[i].log_likelihood, 1e-5);
    ASSERT_EQ(dense[i].kl.size(), 2u);
    EXPECT_NEAR(dense[i].kl[0] + dense[i].kl[1], 0, 1e-9);
    EXPECT_GT(across[i].kl[1], 1e-3);
  }
}

TEST_F(Requests, AGenerationEndsBeforeWhatItIsToEndWith) {
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
}

TEST_F(Requests, WhatCannotBeAnsweredIsSaidBeforeAnythingIsComputed) {
  LoadedModel model = byte_model_with_focus();
  const auto expect = [&](const std::string& line, const AttentionSpec& spec,
                          const std::string& part) {
    bool computed = false;
    ScoreOptions options;
    options.max_length = 8;
    try {
      answer_requests(model, spec, read(std::string(kGood) + "\n" + line), options, nullptr,
                      [&](double) { computed = true; });
      ADD_FAILURE() << "answered: " << line;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("in.jsonl:2"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_FALSE(computed) << line;
  };
  expect(R"({"type":"loglikelihood","context":"a","continuation":"123456789"})", {}, "9 tokens");
  expect(R"({"type":"loglikelihood_rolling","text":""})", {}, "no tokens");
  expect(R"({"type":"generate_until","context":"a","max_gen_toks":8})", {}, "no room");
  expect(R"({"type":"generate_until","context":"a","max_gen_toks":2})",
         {.kind = AttentionKind::soft, .balance = Balance::sequence}, "cannot generate");
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
  EXPECT_EQ(json({.kl = {0.5, 0}}).at("kl"), (std::vector{0.5, 0.0}));
  request = {.type = ScoreRequest::Type::generate_until};
  EXPECT_EQ(json({.text = "\"x", .stop = "until", .tokens = 4}),
            nlohmann::json::parse(R"({"type":"generate_until","text":"\"x","stop":"until",
                "tokens":4,"pairs_touched":0.0})"));
}

}  // namespace
}  // namespace focus
