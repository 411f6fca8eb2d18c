#include <cmath>
#include <numbers>

#include "focus/models/model_files.h"
#include "tests/support/cli.h"

// `focus eval` and `focus leak-test`: the figures they print and what they promise about them.
namespace focus {
namespace {

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

struct Evaluation {
  ProcessResult process;
  nlohmann::json json;
};
Evaluation evaluated(const Words& more) {
  const std::string path = cli().fresh("eval.json");
  Evaluation result;
  result.process = cli().must_run(
      Words{"eval", cli().base(), "--text", cli().valid_text(), "--json", path} + more);
  result.json = nlohmann::json::parse(read_text(path));
  return result;
}

Words names_of(const nlohmann::json& rows) {
  Words names;
  for (const auto& row : rows)
    names.push_back(
        row.at("attention").get<std::string>() +
        (row.at("routing").is_null() ? "" : ", " + row.at("routing").get<std::string>()));
  return names;
}

TEST(CliEval, RowsAreDenseSoftAndHardForEveryK) {
  const auto rows =
      evaluated({"--adapter", cli().adapter(), "--attention", "dense,focus:gate=drop"})
          .json.at("rows");
  EXPECT_EQ(names_of(rows), (Words{"dense", "soft, carried", "hard k=1, carried",
                                   "hard k=2, carried", "hard k=3, carried"}));
  for (const auto& row : rows) EXPECT_TRUE(row.at("causal").get<bool>());
}

TEST(CliEval, SequenceRowsAreLabelledNotCausal) {
  const auto [process, json] =
      evaluated({"--adapter", cli().sequence_adapter(), "--attention", "dense,focus:gate=drop"});
  EXPECT_EQ(names_of(json.at("rows")),
            (Words{"dense", "soft, carried", "hard k=1, carried", "hard k=2, carried",
                   "hard k=3, carried", "soft, sequence", "hard k=1, sequence",
                   "hard k=2, sequence", "hard k=3, sequence"}));
  int labelled = 0;
  for (const auto& row : json.at("rows"))
    EXPECT_EQ(row.at("causal").get<bool>(), row.at("routing") != "sequence");
  for (const std::string& line : lines_of(process.out)) {
    if (!contains(line, "sequence")) continue;
    EXPECT_TRUE(contains(line, "sequence (not causal)")) << line;
    ++labelled;
  }
  EXPECT_EQ(labelled, 4);
}

TEST(CliEval, JsonHasTheFiguresOfTheTable) {
  const auto [process, json] = evaluated({"--adapter", cli().sequence_adapter(), "--attention",
                                          "dense,focus:gate=drop,focus:gate=keep"});
  const auto& rows = json.at("rows");
  std::size_t row = 0;
  bool in_table = false;
  for (const std::string& line : lines_of(process.out)) {
    if (line.starts_with("attention ")) {
      in_table = true;
      continue;
    }
    if (!in_table || line.empty()) {
      in_table = false;
      continue;
    }
    ASSERT_LT(row, rows.size());
    const auto& figures = rows[row++];
    SCOPED_TRACE(line);
    // The kind and the gate are what the table's name says in words.
    const std::string kind = figures.at("kind");
    EXPECT_TRUE(line.starts_with(kind)) << kind;
    EXPECT_EQ(kind == "hard" ? figures.at("gate") == "keep" : !figures.contains("gate"),
              kind != "hard" || contains(line, " keep "));
    EXPECT_TRUE(line.starts_with(figures.at("attention").get<std::string>() + " "));
    const auto words = words_of(line);
    ASSERT_GE(words.size(), 7u);
    const auto from_end = [&](std::size_t i) { return words[words.size() - i]; };
    const double perplexity = figures.at("perplexity"), bits = figures.at("bits_per_byte");
    EXPECT_EQ(from_end(7), fmt::format("{:.4f}", perplexity));
    EXPECT_EQ(from_end(6), fmt::format("{:.5f}", bits));
    EXPECT_EQ(from_end(5), figures.at("tokens_scored").dump());
    EXPECT_EQ(from_end(3),
              fmt::format("{:.1f}%", 100 * figures.at("pairs_attended").get<double>()));
    const double choosing = figures.at("pairs_choosing");
    EXPECT_EQ(from_end(2), fmt::format("{:.1f}%", 100 * choosing));
    EXPECT_EQ(choosing > 0, kind != "dense");
    EXPECT_EQ(from_end(1),
              figures.contains("largest_group")
                  ? fmt::format("{:.1f}%", 100 * figures.at("largest_group").get<double>())
                  : "-");
    EXPECT_NEAR(std::log(perplexity), figures.at("nats_per_token").get<double>(), 1e-12);
    EXPECT_NEAR(bits,
                figures.at("nats_per_token").get<double>() *
                    figures.at("tokens_scored").get<double>() / std::numbers::ln2 /
                    json.at("bytes").get<double>(),
                1e-12);
  }
  EXPECT_EQ(row, rows.size());
  EXPECT_EQ(json.at("bytes"), fs::file_size(cli().valid_text()));
}

TEST(CliEval, DocumentsAreScoredAlone) {
  const std::string folder = cli().fresh("documents"), joined = cli().fresh("joined.txt");
  fs::create_directory(folder);
  const std::vector<std::string> documents = {"once upon a time there was", "a second one",
                                              "third"};
  std::string all;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    write_text(fmt::format("{}/{}.txt", folder, i), documents[i]);
    all += "\n" + documents[i] + " \n<|end|>";
  }
  write_text(joined, all);
  // With a limit of tokens, texts may be shorter than the window.
  const Words options = {"--context", "32", "--stride", "16", "--max-tokens", "1000"};
  const auto alone = cli().figures(Words{"eval", cli().base(), "--text", folder} + options);
  const auto cut = cli().figures(
      Words{"eval", cli().base(), "--text", joined, "--separator", "<|end|>"} + options);
  EXPECT_EQ(cut.at("documents"), documents.size());
  for (const char* key : {"rows", "bytes"}) EXPECT_EQ(cut.at(key), alone.at(key)) << key;
  const auto whole = cli().figures(Words{"eval", cli().base(), "--text", joined} + options);
  EXPECT_EQ(whole.at("documents"), 1);
  EXPECT_EQ(whole.at("bytes"), all.size());
  const auto few = cli().figures(Words{"eval", cli().base(), "--text", joined, "--separator",
                                       "<|end|>", "--max-documents", "2", "--max-tokens", "6",
                                       "--context", "32", "--stride", "16"});
  EXPECT_EQ(few.at("documents"), 2);
  EXPECT_EQ(few.at("bytes"), 12) << "exactly those of the tokens that are left";
  EXPECT_EQ(few.at("rows").at(0).at("tokens_scored"), 10);
}

TEST(CliEval, HardWithAllGroupsIsDense) {
  for (const std::string& adapter : {cli().adapter(), cli().sequence_adapter()}) {
    const auto rows = evaluated({"--adapter", adapter, "--attention",
                                 "dense,focus:gate=drop:balance=carried,"
                                 "focus:gate=drop:balance=sequence"})
                          .json.at("rows");
    const double dense = rows[0].at("perplexity");
    int seen = 0;
    for (const auto& row : rows) {
      if (row.at("attention") != "hard k=3") continue;
      ++seen;
      EXPECT_NEAR(row.at("perplexity").get<double>() / dense, 1, 1e-6);
      EXPECT_EQ(row.at("pairs_attended"), 1.0);
      EXPECT_EQ(row.at("tokens_scored"), rows[0].at("tokens_scored"));
    }
    EXPECT_EQ(seen, 2);
  }
}

TEST(CliEval, FewerGroupsAttendFewerPairs) {
  const auto rows = evaluated({"--adapter", cli().adapter()}).json.at("rows");
  const double one = rows[2].at("pairs_attended"), two = rows[3].at("pairs_attended");
  EXPECT_LT(one, 1.0);
  EXPECT_LE(one, two);
  EXPECT_LE(two, 1.0);
}

TEST(CliEval, TheNumberOfThreadsChangesNoFigure) {
  const Words adapter = {"--adapter", cli().adapter()};
  EXPECT_EQ(evaluated(adapter + Words{"--threads", "1"}).json.at("rows"),
            evaluated(adapter + Words{"--threads", "2"}).json.at("rows"));
}

/// -log p of `target` by a row of logits.
double negative_log_likelihood(const Tensor& logits, Index row, std::int32_t target) {
  const Real* x = logits.data() + row * logits.cols();
  double largest = -INFINITY, sum = 0;
  for (Index i = 0; i < logits.cols(); ++i) largest = std::max<double>(largest, x[i]);
  for (Index i = 0; i < logits.cols(); ++i) sum += std::exp(static_cast<double>(x[i]) - largest);
  return largest + std::log(sum) - static_cast<double>(x[target]);
}

/// The loop of transformers' page on perplexity, word for word in the meaning of its variables.
std::pair<double, std::int64_t> strided_config(const Decoder& decoder,
                                               const std::vector<std::int32_t>& ids,
                                               Index max_length, Index stride) {
  const NoGrad guard;
  double nll_sum = 0;
  std::int64_t n_tokens = 0;
  const auto seq_len = static_cast<Index>(ids.size());
  Index prev_end_loc = 0;
  for (Index begin_loc = 0; begin_loc < seq_len; begin_loc += stride) {
    const Index end_loc = std::min(begin_loc + max_length, seq_len);
    const Index trg_len = end_loc - prev_end_loc;
    const std::vector<std::int32_t> input(ids.begin() + begin_loc, ids.begin() + end_loc);
    const Tensor logits = decoder.logits(decoder.hidden_states(input, 1)).value();
    const auto length = static_cast<Index>(input.size());
    for (Index t = 1; t < length; ++t) {
      if (t < length - trg_len) continue;  // a label of -100
      nll_sum += negative_log_likelihood(logits, t - 1, input[static_cast<std::size_t>(t)]);
      ++n_tokens;
    }
    prev_end_loc = end_loc;
    if (end_loc == seq_len) break;
  }
  return {nll_sum, n_tokens};
}

TEST(CliEval, PerplexityFollowsTheStridedConfig) {
  const LoadedModel model = load_model(cli().base());
  const std::string text = cli().fresh("short.txt");
  struct Case {
    std::size_t bytes;
    Index context, stride;
  };
  // Last windows that are short, full, of one token; a text shorter than a window; no overlap.
  for (const Case& c : {Case{300, 64, 32}, Case{300, 64, 64}, Case{300, 50, 7}, Case{128, 64, 32},
                        Case{129, 64, 64}, Case{65, 64, 1}, Case{40, 64, 32}, Case{2, 64, 32}}) {
    SCOPED_TRACE(fmt::format("{} bytes, context {}, stride {}", c.bytes, c.context, c.stride));
    write_text(text, read_text(cli().valid_text()).substr(0, c.bytes));
    const std::vector<std::int32_t> ids = model.require_tokenizer().encode(read_text(text));
    const auto [nats, tokens] = strided_config(*model.decoder, ids, c.context, c.stride);
    const auto row =
        cli()
            .figures({"eval", cli().base(), "--text", text, "--context", std::to_string(c.context),
                      "--stride", std::to_string(c.stride), "--max-tokens", "1000"})
            .at("rows")
            .at(0);
    EXPECT_EQ(row.at("tokens_scored"), tokens);
    EXPECT_NEAR(row.at("nats_per_token").get<double>() * static_cast<double>(tokens) / nats, 1,
                2e-6);
  }
}

TEST(CliEval, RowsSayWhatTheWeightsAreIn) {
  const auto [exact_process, exact] = evaluated({});
  const auto [process, json] = evaluated({"--adapter", cli().adapter(), "--precision", "bf16"});
  EXPECT_EQ(exact.at("precision"), "float32");
  EXPECT_EQ(exact.at("rows").at(0).at("precision"), "float32");
  EXPECT_EQ(json.at("precision"), "bf16");
  for (const auto& row : json.at("rows")) EXPECT_EQ(row.at("precision"), "bf16");
  EXPECT_TRUE(contains(process.out, " bf16 ")) << process.out;
  EXPECT_TRUE(contains(exact_process.out, " float32 ")) << exact_process.out;
  const double wanted = exact.at("rows").at(0).at("nats_per_token");
  const double nats = json.at("rows").at(0).at("nats_per_token");
  EXPECT_NEAR(nats, wanted, 1e-2);
  EXPECT_NE(nats, wanted) << "nothing was rounded";
}

TEST(CliEval, ComputesStandSideBySide) {
  const Words precisions = {"float32", "bf16", "q8"};
  const Words more = {"--adapter", cli().adapter(), "--attention", "dense,hard:1"};
  const auto [process, json] = evaluated(more + Words{"--precision", "float32,bf16,q8"});
  EXPECT_EQ(json.at("precision"), "float32,bf16,q8");
  const auto& rows = json.at("rows");
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t kind = 0; kind < precisions.size(); ++kind) {
    const auto alone = evaluated(more + Words{"--precision", precisions[kind]}).json.at("rows");
    for (std::size_t a = 0; a < 2; ++a) {
      auto row = rows.at(2 * kind + a);
      const auto& first = rows.at(a);
      EXPECT_EQ(row.at("precision"), precisions[kind]);
      EXPECT_EQ(row.contains("against_precision"), kind > 0);
      if (kind > 0) {
        const auto& against = row.at("against_precision");
        EXPECT_EQ(against.at("precision"), "float32");
        const double difference = against.at("difference");
        EXPECT_NEAR(
            difference,
            row.at("nats_per_token").get<double>() - first.at("nats_per_token").get<double>(),
            1e-9);
        EXPECT_LT(std::abs(difference), 5e-2);
        const double error = against.at("difference_error");
        EXPECT_GT(error, 0) << "nothing was rounded";
        EXPECT_LT(error, 1e-2);
        row.erase("against_precision");
      }
      EXPECT_EQ(row, alone.at(a));
    }
  }
  EXPECT_TRUE(contains(process.out, "difference to float32")) << process.out;
}

TEST(CliEval, ComputesAtSeveralLengths) {
  const auto json = evaluated({"--lengths", "16,32", "--precision", "q8,float32"}).json;
  ASSERT_EQ(json.at("lengths").size(), 2u);
  for (const auto& one : json.at("lengths")) {
    ASSERT_EQ(one.at("rows").size(), 2u);
    EXPECT_EQ(one.at("rows").at(0).at("precision"), "q8");
    EXPECT_EQ(one.at("rows").at(1).at("against_precision").at("precision"), "q8");
  }
}

TEST(CliEval, SeveralTextsAreScoredApart) {
  const std::string a = cli().train_text(), b = cli().valid_text();
  const auto score = [&](const Words& texts) {
    Words command = {"eval", cli().base(), "--text"};
    const auto json = cli().figures(command + texts);
    const auto& row = json.at("rows").at(0);
    return std::pair(row.at("nats_per_token").get<double>() * row.at("tokens_scored").get<double>(),
                     row.at("tokens_scored").get<int>());
  };
  const auto first = score({a}), second = score({b}), both = score({a, b});
  EXPECT_EQ(both.second, first.second + second.second);
  EXPECT_NEAR(both.first / (first.first + second.first), 1, 1e-9);
}

TEST(CliEval, ATokenBeforeTheTextIsScoredByNobody) {
  // With the BOS of the golden GPT-2's config before the text, every byte is predicted.
  const std::string folder = std::string(FOCUS_SOURCE_DIR) + "/tests/golden/arch/gpt2";
  const auto json = cli().figures({"eval", folder, "--tokenizer", cli().ascii_tokenizer(), "--text",
                                   cli().valid_text(), "--bos", "always"});
  EXPECT_EQ(json.at("rows").at(0).at("tokens_scored"), fs::file_size(cli().valid_text()));
}

TEST(CliLeakTest, CarriedRoutingDoesNotLeak) {
  const std::string path = cli().fresh("leak.json");
  for (const std::string& adapter : {cli().adapter(), cli().sequence_adapter()}) {
    const ProcessResult result =
        cli().run({"leak-test", cli().base(), "--adapter", adapter, "--attention",
                   "dense,focus:balance=carried", "--json", path});
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    const auto json = nlohmann::json::parse(read_text(path));
    EXPECT_EQ(json.at("leaks"), false);
    ASSERT_EQ(json.at("modes").size(), 5u);
    for (const auto& mode : json.at("modes")) EXPECT_TRUE(mode.at("first_difference").is_null());
  }
  EXPECT_EQ(cli().run({"leak-test", cli().base(), "--adapter", cli().adapter()}).status, 0);
}

TEST(CliLeakTest, InBf16ToTheBitToo) {
  const Words leak = {"leak-test", cli().base(), "--adapter", cli().adapter()};
  const auto json = cli().figures(leak + Words{"--precision", "bf16"});
  EXPECT_EQ(json.at("precision"), "bf16");
  EXPECT_EQ(json.at("leaks"), false);
  EXPECT_EQ(cli().figures(leak).at("precision"), "float32");
  const Words sequence = {"leak-test", cli().base(), "--adapter", cli().sequence_adapter()};
  EXPECT_EQ(cli().run(sequence + Words{"--precision", "bf16"}).status, 1);
}

TEST(CliLeakTest, SequenceRoutingLeaksAndThePositionIsNamed) {
  const std::string path = cli().fresh("leak.json");
  const ProcessResult result =
      cli().run({"leak-test", cli().base(), "--adapter", cli().sequence_adapter(), "--json", path});
  EXPECT_EQ(result.status, 1) << result.out << result.err;
  const auto json = nlohmann::json::parse(read_text(path));
  EXPECT_EQ(json.at("leaks"), true);
  const auto& dense = json.at("modes").at(0);
  const auto& soft = json.at("modes").at(1);
  EXPECT_EQ(dense.at("leaks"), false);
  EXPECT_EQ(soft.at("leaks"), true);
  ASSERT_TRUE(soft.at("first_difference").is_number()) << soft;
  EXPECT_TRUE(contains(result.out, fmt::format("logits differ first at position {}",
                                               soft.at("first_difference").get<int>())))
      << result.out;
}

}  // namespace
}  // namespace focus
