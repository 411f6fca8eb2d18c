#include <cmath>
#include <numbers>

#include "focus/models/model_files.h"
#include "tests/support/cli.h"

// `focus eval` and `focus leak-test`: the figures they print and what they promise about them.
namespace focus {
namespace {

std::pair<ProcessResult, nlohmann::json> evaluated(const Words& more) {
  const std::string path = cli().fresh("eval.json");
  ProcessResult process =
      cli().must_run(words("eval {base} --text {valid} --json {}", path) + more);
  return {std::move(process), read_json(path)};
}
nlohmann::json evaluated_rows(const Words& more) {
  return cli().rows(Words("{base} --text {valid}") + more);
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
  const auto rows = evaluated_rows("--adapter {adapter} --attention dense,focus:gate=drop");
  EXPECT_EQ(names_of(rows), (Words{"dense", "soft, carried", "hard k=1, carried",
                                   "hard k=2, carried", "hard k=3, carried"}));
  for (const auto& row : rows) EXPECT_TRUE(row.at("causal").get<bool>());
}

TEST(CliEval, SequenceRowsAreLabelledNotCausal) {
  const auto [process, json] = evaluated("--adapter {sequence} --attention dense,focus:gate=drop");
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
  const auto [process, json] =
      evaluated("--adapter {sequence} --attention dense,focus:gate=drop,focus:gate=keep");
  const auto& rows = json.at("rows");
  const Words lines = lines_of(process.out);
  auto line =
      std::ranges::find_if(lines, [](const auto& l) { return l.starts_with("attention "); });
  ASSERT_NE(line, lines.end());
  for (const auto& row : rows) {
    SCOPED_TRACE(*++line);
    const std::string kind = row.at("kind"), name = row.at("attention");
    EXPECT_TRUE(line->starts_with(kind) && line->starts_with(name + " "));
    EXPECT_EQ(kind == "hard" ? row.at("gate") == "keep" : !row.at("gate").is_null(),
              kind == "hard" && contains(*line, " keep "));
    const double perplexity = row.at("perplexity"), bits = row.at("bits_per_byte");
    const double nats = row.at("nats_per_token"), tokens = row.at("tokens_scored");
    const double choosing = row.at("pairs_choosing");
    for (const std::string& cell :
         {fmt::format(" {:.4f} ", perplexity), fmt::format(" {:.5f} ", bits),
          fmt::format(" {:.0f} ", tokens),
          fmt::format(" {:.1f} % ", 100 * row.at("pairs_attended").get<double>()),
          fmt::format(" {:.1f} % ", 100 * choosing),
          row.at("largest_group").is_null()
              ? std::string(" - ")
              : fmt::format(" {:.1f} % ", 100 * row.at("largest_group").get<double>())})
      EXPECT_TRUE(contains(*line + " ", cell)) << cell;
    EXPECT_EQ(choosing > 0, kind != "dense");
    EXPECT_TRUE(row.at("tokens_per_second").is_null());
    EXPECT_NEAR(std::log(perplexity), nats, 1e-12);
    EXPECT_NEAR(bits, nats * tokens / std::numbers::ln2 / json.at("bytes").get<double>(), 1e-12);
  }
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
  const Words options = "--context 32 --stride 16";
  const auto score = [&](const std::string& text, const Words& more) {
    return cli().figures(words("eval {base} --text {}", text) + options + more);
  };
  const auto alone = score(folder, "--max-tokens 1000"),
             cut = score(joined, "--max-tokens 1000 --separator <|end|>");
  EXPECT_EQ(cut.at("documents"), documents.size());
  for (const char* key : {"rows", "bytes"}) EXPECT_EQ(cut.at(key), alone.at(key)) << key;
  const auto whole = score(joined, "--max-tokens 1000");
  EXPECT_EQ(whole.at("documents"), 1);
  EXPECT_EQ(whole.at("bytes"), all.size());
  const auto few = score(joined, "--separator <|end|> --max-documents 2 --max-tokens 6");
  EXPECT_EQ(few.at("documents"), 2);
  EXPECT_EQ(few.at("bytes"), 12) << "exactly those of the tokens that are left";
  EXPECT_EQ(few.at("rows").at(0).at("tokens_scored"), 10);
}

TEST(CliEval, TheNumberOfThreadsChangesNoFigure) {
  EXPECT_EQ(evaluated_rows("--adapter {adapter} --threads 1"),
            evaluated_rows("--adapter {adapter} --threads 2"));
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
    // What is before has a label of -100.
    for (Index t = std::max<Index>(1, length - trg_len); t < length; ++t, ++n_tokens)
      nll_sum += negative_log_likelihood(logits, t - 1, input[t]);
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
    const auto row = cli()
                         .rows(words("{base} --text {} --context {} --stride {} --max-tokens 1000",
                                     text, std::to_string(c.context), std::to_string(c.stride)))
                         .at(0);
    EXPECT_EQ(row.at("tokens_scored"), tokens);
    EXPECT_NEAR(row.at("nats_per_token").get<double>() * static_cast<double>(tokens) / nats, 1,
                2e-6);
  }
}

TEST(CliEval, RowsSayWhatTheWeightsAreIn) {
  const auto [exact_process, exact] = evaluated({});
  EXPECT_EQ(exact.at("precision"), "float32");
  EXPECT_EQ(exact.at("rows").at(0).at("precision"), "float32");
  expect_parts(exact_process.out, {"precision float32"});
  const double expected = exact.at("rows").at(0).at("nats_per_token");
  for (const std::string precision : {"bf16", "q8"}) {
    const auto [process, json] = evaluated(words("--adapter {adapter} --precision {}", precision));
    EXPECT_EQ(json.at("precision"), precision);
    for (const auto& row : json.at("rows")) EXPECT_EQ(row.at("precision"), precision);
    expect_parts(process.out, {"precision " + precision});
    const double nats = json.at("rows").at(0).at("nats_per_token");
    EXPECT_NEAR(nats, expected, 5e-2);
    EXPECT_NE(nats, expected) << "nothing was rounded";
  }
}

TEST(CliEval, SeveralTextsAreScoredApart) {
  const auto score = [](const char* texts) {
    const auto row = cli().rows(Words("{base} --text") + texts).at(0);
    return std::pair(row.at("nats_per_token").get<double>() * row.at("tokens_scored").get<double>(),
                     row.at("tokens_scored").get<int>());
  };
  const auto first = score("{train}"), second = score("{valid}"), both = score("{train} {valid}");
  EXPECT_EQ(both.second, first.second + second.second);
  EXPECT_NEAR(both.first / (first.first + second.first), 1, 1e-9);
}

TEST(CliEval, ATokenBeforeTheTextIsScoredByNobody) {
  // With the BOS of the golden GPT-2's config before the text, every byte is predicted.
  const auto rows =
      cli().rows(words("{} --tokenizer {ascii} --text {valid} --bos always", golden_arch("gpt2")));
  EXPECT_EQ(rows.at(0).at("tokens_scored"), fs::file_size(cli().valid_text()));
}

TEST(CliLeakTest, CarriedRoutingDoesNotLeak) {
  for (const char* adapter : {"--adapter {adapter}", "--adapter {sequence}"}) {
    const auto json =
        cli().figures(Words("leak-test {base} --attention dense,focus:balance=carried") + adapter);
    EXPECT_EQ(json.at("leaks"), false);
    ASSERT_EQ(json.at("modes").size(), 5u);
    for (const auto& mode : json.at("modes")) EXPECT_TRUE(mode.at("first_difference").is_null());
  }
}

TEST(CliLeakTest, InBf16ToTheBitToo) {
  const Words leak = "leak-test {base} --adapter {adapter}";
  const auto json = cli().figures(leak + "--precision bf16");
  EXPECT_EQ(json.at("precision"), "bf16");
  EXPECT_EQ(json.at("leaks"), false);
  EXPECT_EQ(cli().figures(leak).at("precision"), "float32");
}

TEST(CliLeakTest, SequenceRoutingLeaksAndThePositionIsNamed) {
  for (const std::string precision : {"float32", "bf16"}) {
    const std::string path = cli().fresh("leak.json");
    const ProcessResult result = cli().run(
        words("leak-test {base} --adapter {sequence} --json {} --precision {}", path, precision));
    EXPECT_EQ(result.status, 1) << result.out << result.err;
    const auto json = read_json(path);
    EXPECT_EQ(json.at("leaks"), true);
    EXPECT_EQ(json.at("modes").at(0).at("leaks"), false);  // dense
    const auto& soft = json.at("modes").at(1);
    EXPECT_EQ(soft.at("leaks"), true);
    ASSERT_TRUE(soft.at("first_difference").is_number()) << soft;
    expect_parts(result.out, {fmt::format("logits differ first at position {}",
                                          soft.at("first_difference").get<int>())});
  }
}

}  // namespace
}  // namespace focus
