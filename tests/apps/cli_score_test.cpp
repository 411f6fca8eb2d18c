#include <cmath>

#include "tests/support/cli.h"

// `focus score` and `focus eval`: what they write, and what they refuse.
namespace focus {
namespace {

using Json = nlohmann::json;

std::string requests_file(const std::string& text) {
  const std::string path = cli().fresh("in.jsonl");
  write_text(path, text);
  return path;
}
std::string asked(const std::string& context, const std::string& continuation, int id = 0) {
  return Json({{"type", "loglikelihood"},
               {"context", context},
               {"continuation", continuation},
               {"id", id}})
             .dump() +
         "\n";
}

std::vector<Json> answers(const std::string& requests, const Words& more = {}) {
  const std::string out = cli().fresh("out.jsonl");
  cli().must_run(Words{"score", cli().base(), "--requests", requests_file(requests), "--out", out} +
                 more);
  std::vector<Json> all;
  for (const std::string& line : lines_of(read_text(out))) all.push_back(Json::parse(line));
  return all;
}

const std::string kContext = "Once upon a time there was a";

TEST(CliScore, AnswersKeepTheirOrderAndTheirIds) {
  const auto all =
      answers(asked(kContext, " fox", 3) + asked("The", " end", 1) + asked(kContext, " hen.", 2) +
              R"({"type":"generate_until","context":"The","max_gen_toks":5})");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].at("id"), 3);
  EXPECT_EQ(all[1].at("id"), 1);
  EXPECT_EQ(all[2].at("id"), 2);
  EXPECT_FALSE(all[3].contains("id"));
  EXPECT_EQ(all[0].at("tokens"), 4);
  EXPECT_EQ(all[2].at("tokens"), 5);
  EXPECT_EQ(all[3].at("tokens"), 5);
  EXPECT_LT(all[0].at("log_likelihood"), 0);
  EXPECT_TRUE(all[0].at("is_greedy").is_boolean());
}

TEST(CliScore, SharingChangesNoNumber) {
  const Words requests = {asked(kContext, " fox"), asked(kContext, " hen."),
                          asked("Once upon a time there was one", "e"), asked(kContext, " f"),
                          asked("x", " fox")};
  for (const std::string attention : {"dense", "soft", "hard:1", "window:8"}) {
    const Words words = {"--adapter", cli().adapter(), "--attention", attention};
    const auto shared = answers(fmt::format("{}", fmt::join(requests, "")), words);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto alone = answers(requests[i], words).at(0);
      EXPECT_NEAR(shared[i].at("log_likelihood").get<double>(),
                  alone.at("log_likelihood").get<double>(), 1e-4)
          << attention << ", " << i;
      EXPECT_EQ(shared[i].at("is_greedy"), alone.at("is_greedy"));
    }
    EXPECT_EQ(shared[4].at("pairs_touched"), 0);  // five tokens in a window of 8
    const double touched = shared[0].at("pairs_touched");
    EXPECT_TRUE(attention == "dense" ? touched == 0 : touched > 0.3) << attention << touched;
  }
}

TEST(CliScore, AReferenceAddsTheDivergence) {
  const std::string requests = asked(kContext, " fox") + asked("The", " end");
  const auto kl = [&](const std::string& reference) -> std::vector<double> {
    return answers(requests, {"--reference", reference}).at(0).at("kl");
  };
  ASSERT_EQ(kl(cli().base()).size(), 4u);
  EXPECT_NEAR(kl(cli().base())[0], 0, 1e-9);
  EXPECT_GT(kl(cli().other_base())[0], 1e-3);
  EXPECT_FALSE(answers(requests).at(0).contains("kl"));
}

TEST(CliScore, ALongContextIsCutWithANotice) {
  const std::string out = cli().fresh("out.jsonl");
  const ProcessResult result = cli().must_run(
      {"score", cli().base(), "--requests",
       requests_file(asked(std::string(100, 'a'), "b") + asked("a", "b")), "--out", out});
  EXPECT_TRUE(contains(result.err, "1 of 2 contexts were too long")) << result.err;
  const Json first = Json::parse(lines_of(read_text(out)).at(0));
  EXPECT_EQ(first.at("cut"), 36);
  EXPECT_NEAR(first.at("log_likelihood").get<double>(),
              answers(asked(std::string(64, 'a'), "b")).at(0).at("log_likelihood").get<double>(),
              1e-5);
}

TEST(CliScore, BadRequestsAreRefusedAndNothingIsWritten) {
  const auto expect = [&](const std::string& requests, const Words& parts, const Words& more = {}) {
    const std::string out = cli().fresh("out.jsonl"), in = requests_file(requests);
    expect_refused(Words{"score", cli().base(), "--requests", in, "--out", out} + more, parts);
    EXPECT_FALSE(fs::exists(out)) << requests;
  };
  const std::string good = asked("a", "b");
  expect("", {"no requests"});
  expect(good + "{\"type\"\n", {"in.jsonl:2", "not valid JSON"});
  expect(good + "{\"type\":\"loglikelihood\",\"context\":\"a\"}\n",
         {"in.jsonl:2", "continuation", "missing"});
  expect(good + "{\"type\":\"loglikelihood\",\"context\":\"\\ud83d\",\"continuation\":\"b\"}\n",
         {"in.jsonl:2", "surrogate"});
  expect(good + "{\"type\":\"loglikelihood\",\"context\":\"a\",\"continuation\":\"\\udc00\"}\n",
         {"in.jsonl:2", "surrogate"});
  expect(good + "{\"type\":\"generate_until\",\"context\":\"a\",\"until\":[\"\\ud800\"]}\n",
         {"in.jsonl:2", "surrogate"});
  expect(good + "[1]\n", {"in.jsonl:2", "object"});
  expect(good + R"({"type":"loglikelihood_rolling","text":""})", {"in.jsonl:2", "BOS or EOS"});
  expect(good + R"({"type":"generate_until","context":"a","max_gen_toks":64})",
         {"in.jsonl:2", "no room", "64 tokens"});
  expect(good + asked("a", ""), {"in.jsonl:2", "continuation is empty"});
  expect(good + asked("a", std::string(65, 'b')), {"in.jsonl:2", "65 tokens", "64 fit"});
  expect(good + asked("", "b"), {"in.jsonl:2", "BOS or EOS"});  // this model has none
  expect(asked("a", "123456789"), {"in.jsonl:1", "9 tokens", "8 fit"}, {"--max-length", "8"});
  expect(good, {"max-length 65", "64 positions"}, {"--max-length", "65"});
  expect(good, {"hard", "no Focus"}, {"--attention", "hard:1"});
  const std::string missing = cli().fresh("missing.jsonl"), out = cli().fresh("out.jsonl");
  expect_refused({"score", cli().base(), "--requests", missing, "--out", out}, {missing});
  write_text(out, "precious");
  expect_refused({"score", cli().base(), "--requests", requests_file(good), "--out", out},
                 {out, "exists already"});
  EXPECT_EQ(read_text(out), "precious");
}

TEST(CliEval, AContextBeyondThePositionsIsRefused) {
  expect_refused({"eval", cli().base(), "--context", "65", "--text", cli().valid_text()},
                 {"65", "64 positions"});
}

TEST(CliEval, PerplexityByWordAndByByte) {
  const std::string path = cli().fresh("words.txt");
  write_text(path, "one two  three\nfour @,@ five \n");
  const Words command = {"eval", cli().base(), "--text", path, "--attention", "dense"};
  const Json plain = cli().figures(command);
  EXPECT_EQ(plain.at("words"), 6);
  const Json row = plain.at("rows").at(0);
  const double nats =
      row.at("nats_per_token").get<double>() * row.at("tokens_scored").get<double>();
  EXPECT_NEAR(std::log(row.at("word_perplexity").get<double>()), nats / 6, 1e-9);
  EXPECT_NEAR(std::log(row.at("byte_perplexity").get<double>()), nats / 30, 1e-9);
  const Json wikitext = cli().figures(command + Words{"--detokenize", "wikitext"});
  EXPECT_EQ(wikitext.at("words"), 8);
  EXPECT_EQ(wikitext.at("bytes"), 30);
  // "four,five\n": five characters less, and as many tokens.
  EXPECT_EQ(wikitext.at("rows").at(0).at("tokens_scored").get<int>(),
            row.at("tokens_scored").get<int>() - 5);
  expect_refused(command + Words{"--detokenize", "wikitext", "--max-tokens", "9"},
                 {"detokenize", "max_tokens"});
}

}  // namespace
}  // namespace focus
