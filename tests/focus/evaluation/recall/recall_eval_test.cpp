#include <gmock/gmock.h>

#include <tuple>

#include "data/synthetic/far_corpus.h"
#include "focus/evaluation/recall/long_range.h"
#include "focus/evaluation/report/evaluation_file.h"
#include "tests/support/byte_model.h"
#include "tests/support/random.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using testing::HasSubstr;

AskedDocument document() {
  //       0123456789
  return {"b71 k3\nb71", {{.begin = 8, .end = 10, .source = 1}}};
}

void expect_answer(const RecallItem& item, Index begin, Index end, Index distance) {
  ASSERT_EQ(item.answers.size(), 1U);
  EXPECT_EQ(item.answers[0].begin, begin);
  EXPECT_EQ(item.answers[0].end, end);
  EXPECT_EQ(item.answers[0].distance, distance);
}

TEST(RecallItems, BytesBecomeTokensThatADocumentStartMoves) {
  LoadedModel model = byte_model();
  const auto items = recall_items(model, std::vector{document()}, "here");
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(items[0].ids.size(), 10U);
  expect_answer(items[0], 8, 10, 7);
  model.bos = Bos::always;
  const auto moved = recall_items(model, std::vector{document()}, "here");
  EXPECT_EQ(moved[0].ids.size(), 11U);
  EXPECT_EQ(moved[0].ids[0], 0);
  expect_answer(moved[0], 9, 11, 7);
}

TEST(RecallItems, TokensOfSeveralBytesHoldTheAnswer) {
  const TempFolder folder;
  // "ab" is one token: an answer that begins at b is in the token before the next one.
  write_text(folder / "tokenizer.json",
             R"({"version":"1.0","added_tokens":[],"normalizer":null,"post_processor":null,
"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},
"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"ab":3},"merges":[["a","b"]]}})");
  LoadedModel model = byte_model();
  model.tokenizer = load_tokenizer(folder / "tokenizer.json");
  const AskedDocument told{"abcabc", {{.begin = 4, .end = 6, .source = 1}}};
  const auto items = recall_items(model, std::vector{told}, "here");
  ASSERT_EQ(items[0].ids, (std::vector<std::int32_t>{3, 2, 3, 2}));
  expect_answer(items[0], 2, 4, 2);
}

TEST(RecallItems, MistakesNameTheDocument) {
  AskedDocument longer = document();
  longer.text += std::string(200, 'x');
  const auto error = [&](const std::string& family, bool beyond) {
    return error_of([&] {
      recall_items(byte_model(family), std::vector{document(), longer}, "q.jsonl", beyond);
    });
  };
  EXPECT_THAT(error("llama", false),
              AllOf(HasSubstr("q.jsonl, document 2"), HasSubstr("--beyond-positions")));
  EXPECT_EQ(error("llama", true), "");
  // Learned positions end.
  EXPECT_THAT(error("gpt2", true), AllOf(HasSubstr("q.jsonl, document 2"), HasSubstr("learned")));
}

/// Random ids in which every second of the answers is what the model itself finds likeliest.
RecallItem half_right(const LoadedModel& model, const std::vector<Index>& distances) {
  const NoGrad guard;
  RecallItem item{.name = "item", .ids = random_ids(100, 256, 3), .answers = {}};
  bool right = true;
  Index at = 10;
  for (const Index distance : distances) {
    for (Index t = at; t < at + 2; ++t) {
      const Tensor logits =
          model.decoder->logits(model.decoder->hidden_states(item.ids, 1)).value();
      const Real* row = logits.data() + (t - 1) * 256;
      const auto best = static_cast<std::int32_t>(std::max_element(row, row + 256) - row);
      // Only the second token of a wrong answer is wrong: all have to be right.
      item.ids[t] = right || t == at ? best : (best + 1) % 256;
    }
    item.answers.push_back({.begin = at, .end = at + 2, .distance = distance});
    right = !right;
    at += 10;
  }
  return item;
}

TEST(Recall, CountsByDistance) {
  LoadedModel model = byte_model();
  const RecallItem item = half_right(model, {3, 32, 33, 64, 65, 300});
  const RecallRow row = evaluate_recall(model, {.kind = AttentionKind::dense}, std::vector{item});
  EXPECT_EQ(row.attention.name, "dense");
  EXPECT_EQ(row.all.answers, 6);
  EXPECT_EQ(row.all.right, 0.5);
  EXPECT_EQ(row.all.tokens, 12);
  EXPECT_NEAR(row.all.standard_error, std::sqrt(0.25 / 6), 1e-12);
  const std::vector<std::tuple<Index, Index, std::int64_t, double>> expected = {
      {1, 32, 2, 0.5}, {33, 64, 2, 0.5}, {65, 128, 1, 1}, {257, 512, 1, 0}};
  ASSERT_EQ(row.by_distance.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [from, to, figures] = row.by_distance[i];
    EXPECT_EQ(std::tuple(from, to, figures.answers, figures.right), expected[i]);
  }
}

TEST(Recall, NatsAreTheAnswersAlone) {
  LoadedModel model = byte_model();
  const RecallItem item = half_right(model, {40});
  const RecallRow row = evaluate_recall(model, {.kind = AttentionKind::dense}, std::vector{item});
  const NoGrad guard;
  const Variable hidden = model.decoder->hidden_states(item.ids, 1);
  const std::vector<double> all =
      model.decoder->cross_entropy_rows(hidden.value(), shifted_targets(item.ids, 1));
  EXPECT_NEAR(2 * row.all.nats_per_token, all[9] + all[10], 1e-5);
}

TEST(Recall, AnotherAttentionIsWhatRuns) {
  LoadedModel model = byte_model();
  const RecallItem item = half_right(model, {40, 50});
  const auto nats = [&](const std::string& word) {
    return evaluate_recall(model, parse_attention(word), std::vector{item}).all.nats_per_token;
  };
  EXPECT_NE(nats("window:2"), nats("dense"));
  EXPECT_NEAR(nats("window:200"), nats("dense"), 1e-4);
  EXPECT_EQ(evaluate_recall(model, parse_attention("window:2"), std::vector{item}).attention.name,
            "window w=2");
}

TEST(Recall, QuestionsComeFromAFileOrAKind) {
  const TempFolder folder;
  const std::string path = (folder / "q.jsonl").string();
  write_text(path, questions_jsonl(std::vector{document()}));
  EXPECT_EQ(asked_documents(path), std::vector{document()});
  const auto made = asked_documents("copy:keys=3:distance=10,20:documents=5:seed=9");
  EXPECT_EQ(made, generate_far_documents({.kind = CorpusKind::copy,
                                          .documents = 5,
                                          .seed = 9,
                                          .keys = {3},
                                          .distance = {10, 20}}));
  EXPECT_EQ(asked_documents("recall").size(), 100U);
  for (const char* wrong : {"nowhere.jsonl", "tales", "recall:key=3", "recall:keys=0", "copy:3"})
    EXPECT_THAT(error_of([&] { asked_documents(wrong); }),
                AllOf(HasSubstr(wrong), Not(HasSubstr("\n"))));
}

TEST(Recall, TheTableHasAColumnForEachDistance) {
  RecallRow dense{
      .attention = {.name = "dense"},
      .all = {.answers = 8, .right = 0.75, .standard_error = 0.153},
      .by_distance = {{.from = 1, .to = 32, .figures = {.answers = 4, .right = 1}},
                      {.from = 65, .to = 128, .figures = {.answers = 4, .right = 0.5}}}};
  RecallRow local = dense;
  local.attention.name = "local only";
  local.all = {.answers = 8, .right = 0.125, .standard_error = 0.117};
  local.by_distance[1].figures.right = 0;
  EXPECT_EQ(plain_text(recall_table({dense, local}), 2),
            "\nattention   routing        correct  1 to 32  65 to 128\n"
            "dense       -        75.0 % +-15.3  100.0 %     50.0 %\n"
            "local only  -        12.5 % +-11.7  100.0 %      0.0 %\n"
            "answers                          8        4          4\n");
}

}  // namespace
}  // namespace focus
