// `focus score` and `focus eval`: what they write, and what they refuse.
#include <cmath>

#include "tests/support/cli.h"

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
  cli().must_run(words("score {base} --requests {} --out {}", requests_file(requests), out) + more);
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
    const Words options = words("--adapter {adapter} --attention {}", attention);
    const auto shared = answers(fmt::format("{}", fmt::join(requests, "")), options);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto alone = answers(requests[i], options).at(0);
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

TEST(CliScore, ALongContextIsCutWithANotice) {
  const std::string out = cli().fresh("out.jsonl");
  const std::string requests = requests_file(asked(std::string(100, 'a'), "b") + asked("a", "b"));
  expect_parts(cli().must_run(words("score {base} --requests {} --out {}", requests, out)).err,
               {"1 of 2 contexts were too long"});
  const Json first = Json::parse(lines_of(read_text(out)).at(0));
  EXPECT_EQ(first.at("cut"), 36);
  EXPECT_NEAR(first.at("log_likelihood").get<double>(),
              answers(asked(std::string(64, 'a'), "b")).at(0).at("log_likelihood").get<double>(),
              1e-5);
}

/// What requests may say has tests of its own in focus/evaluation/scores.
TEST(CliScore, BadRequestsAreRefusedAndNothingIsWritten) {
  const std::string good = asked("a", "b"), out = cli().fresh("out.jsonl");
  struct Case {
    std::string requests;
    std::vector<std::string> parts;
    Words more = {};
  };
  for (const auto& [requests, parts, more] : std::vector<Case>{
           {good + "{\"type\"\n", {"in.jsonl:2", "not valid JSON"}},
           {good + R"({"type":"loglikelihood_rolling","text":""})", {"in.jsonl:2", "BOS or EOS"}},
           {good + R"({"type":"generate_until","context":"a","max_gen_toks":64})",
            {"in.jsonl:2", "no room", "64 tokens"}},
           {good + asked("", "b"), {"in.jsonl:2", "BOS or EOS"}},  // this model has none
           {asked("a", "123456789"), {"in.jsonl:1", "9 tokens", "8 fit"}, "--max-length 8"},
           {good, {"max-length 65", "64 positions"}, "--max-length 65"},
           {good, {"hard", "no Focus"}, "--attention hard:1"}}) {
    const std::string in = requests_file(requests);
    expect_refused(words("score {base} --requests {} --out {}", in, out) + more, parts);
    EXPECT_FALSE(fs::exists(out)) << requests;
  }
}

TEST(CliEval, PerplexityByWordAndByByte) {
  const std::string path = cli().fresh("words.txt");
  write_text(path, "one two  three\nfour @,@ five \n");
  const Words command = words("eval {base} --text {} --attention dense", path);
  const Json plain = cli().figures(command), row = plain.at("rows").at(0);
  EXPECT_EQ(plain.at("words"), 6);
  const double nats =
      row.at("nats_per_token").get<double>() * row.at("tokens_scored").get<double>();
  EXPECT_NEAR(std::log(row.at("word_perplexity").get<double>()), nats / 6, 1e-9);
  EXPECT_NEAR(std::log(row.at("byte_perplexity").get<double>()), nats / 30, 1e-9);
  const Json wikitext = cli().figures(command + "--detokenize wikitext");
  EXPECT_EQ(wikitext.at("words"), 8);
  EXPECT_EQ(wikitext.at("bytes"), 30);
  // "four,five\n": five characters less, and as many tokens.
  EXPECT_EQ(wikitext.at("rows").at(0).at("tokens_scored").get<int>(),
            row.at("tokens_scored").get<int>() - 5);
  expect_refused(command + "--detokenize wikitext --max-tokens 9", {"detokenize", "max_tokens"});
}

// Long-range recall: `focus corpus --kind`, `focus eval --recall`, `--html`.

std::string questions() {
  static const std::string path = [] {
    const std::string made = cli().fresh("questions.jsonl");
    cli().must_run(
        words("corpus --out {} --questions {} --kind recall --documents 3 --keys 4 "
              "--distance 0,30 --share 0.7",
              cli().fresh("recall.txt"), made));
    return made;
  }();
  return path;
}

TEST(CliRecall, CorpusWritesTextAndQuestions) {
  const std::string text = cli().fresh("copy.txt"), asked = cli().fresh("copy.jsonl");
  cli().must_run(
      words("corpus --out {} --questions {} --kind copy --documents 4 --separator #", text, asked));
  const auto lines = lines_of(read_text(asked));
  ASSERT_EQ(lines.size(), 4U);
  std::string joined;
  for (const std::string& line : lines)
    joined +=
        (joined.empty() ? "" : "#") + nlohmann::json::parse(line).at("text").get<std::string>();
  EXPECT_EQ(read_text(text), joined);
  EXPECT_EQ(lines_of(read_text(questions())).size(), 2U) << "tales ask nothing";
}

TEST(CliRecall, CorpusRefusesWhatItCannotMean) {
  const std::string out = cli().fresh("x.txt");
  const Words corpus = words("corpus --out {}", out), copy = corpus + "--kind copy";
  expect_refused(corpus + "--questions q", {"--questions", "tales"});
  expect_refused(corpus + "--kind poems", {"--kind", "recall"});
  expect_refused(copy + "--share 2", {"--share"});
  expect_refused(copy + "--distance []", {"distance"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(CliRecall, EvalPrintsAccuracyForEveryAttention) {
  const std::string json = cli().fresh("eval.json");
  const auto result = cli().must_run(
      words("eval {base} --adapter {adapter} --recall {} --beyond-positions --json {} --attention "
            "dense,local,sink_window:8,soft,hard:1,summary:1",
            questions(), json));
  expect_parts(result.out, {"routing", "correct"});
  const auto figures = read_json(json);
  EXPECT_FALSE(figures.contains("rows"));
  const auto& rows = figures.at("recall").at("rows");
  ASSERT_EQ(rows.size(), 6U);
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("answers"), 8);
    std::int64_t answers = 0;
    for (const auto& bucket : row.at("by_distance")) answers += bucket.at("answers").get<int>();
    EXPECT_EQ(answers, 8);
    expect_parts(result.out, {row.at("attention")});
  }
}

TEST(CliRecall, EvalWritesAPage) {
  const std::string page = cli().fresh("eval.html");
  cli().must_run(
      words("eval {base} --adapter {adapter} --text {valid} --html {} --recall "
            "copy:keys=2,3:distance=0:documents=2 --attention dense,hard:1",
            page));
  expect_parts(read_text(page), {"Perplexity", "Recall", "<svg", "</html>"});
}

TEST(CliRecall, BadQuestionsAreOneLine) {
  const std::string bad = cli().fresh("bad.jsonl");
  write_text(bad, "{\"text\": \"ab\", \"answers\": []}\n");
  const Words eval = "eval {base} --recall";
  expect_refused(eval + Words{bad}, {bad, "line 1"});
  expect_refused(eval + "poems", {"poems", "recall"});
  expect_refused(eval + "recall:documents=1000000000", {"1000000000 documents", "use fewer"});
  expect_refused(eval + "copy:distance=4000", {"document 1", "--beyond-positions"});
}

TEST(CliRecall, RotaryPositionsGoOnWhereAsked) {
  const Words eval = "eval {base} --text {valid} --attention dense --context 128";
  expect_refused(eval, {"64 positions", "--beyond-positions"});
  const auto result = cli().must_run(eval + "--beyond-positions");
  expect_parts(result.err, {"exceed the 64 positions"});
  expect_parts(result.out, {"context 128"});
  expect_refused("eval {other} --text {valid} --context 128 --beyond-positions",
                 {"64 positions", "learned"});
}

}  // namespace
}  // namespace focus
