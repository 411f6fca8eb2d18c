// The C interface as another language calls it: handles, statuses, messages, threads.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "focus/focus.h"
#include "focus/training/tasks.h"
#include "tests/support/temp_folder.h"

namespace focus {
namespace {

using Json = nlohmann::json;

std::string text_of(focus_value* value) {
  const char* text = nullptr;
  std::size_t bytes = 0;
  EXPECT_EQ(focus_value_text(value, &text, &bytes), FOCUS_OK) << focus_error();
  const std::string copy(text, bytes);
  EXPECT_EQ(focus_value_free(value), FOCUS_OK);
  return copy;
}

Json json_of(focus_value* value) { return Json::parse(text_of(value)); }

/// That a call fails and says so.
template <class F>
void expect_refused(F&& f, const std::string& part) {
  EXPECT_EQ(f(), FOCUS_FAILED) << part;
  EXPECT_NE(std::string(focus_error()).find(part), std::string::npos) << focus_error();
}

/// A small model, trained by the interface itself; and what it is trained on.
class CInterface : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TempFolder;
    std::string text;
    for (int i = 0; i < 200; ++i)
      text += "the fox went into wood number " + std::to_string(i) + "\n";
    write_text(*folder_ / "text.txt", text);
    const Json settings = {{"method", "scratch"},
                           {"tokenizer", "bytes"},
                           {"out", (*folder_ / "base").string()},
                           {"steps", 3},
                           {"threads", 1},
                           {"model", {{"hidden_size", 32}, {"num_hidden_layers", 2}}},
                           {"data",
                            {{"train", {(*folder_ / "text.txt").string()}},
                             {"context", 64},
                             {"batch", 2},
                             {"cache_dir", (*folder_ / "cache").string()}}}};
    focus_value* result = nullptr;
    ASSERT_EQ(focus_train(nullptr, settings.dump().c_str(), nullptr, nullptr, nullptr, &result),
              FOCUS_OK)
        << focus_error();
    EXPECT_TRUE(json_of(result)["finished"]);
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string base() { return (*folder_ / "base/model.h5").string(); }
  static std::string text() { return read_text(*folder_ / "text.txt"); }

  focus_model* open() const {
    focus_model* model = nullptr;
    EXPECT_EQ(focus_model_open(base().c_str(), nullptr, &model), FOCUS_OK) << focus_error();
    return model;
  }

  static TempFolder* folder_;
};

TempFolder* CInterface::folder_ = nullptr;

const std::int32_t kIds[] = {116, 104, 101, 32, 102, 111, 120};
constexpr focus_ids kPrompt = {kIds, std::size(kIds)};

std::vector<float> logits_of(focus_model* model) {
  focus_value* value = nullptr;
  EXPECT_EQ(focus_model_logits(model, kPrompt, 0, &value), FOCUS_OK) << focus_error();
  focus_array array;
  EXPECT_EQ(focus_value_array(value, &array), FOCUS_OK);
  EXPECT_EQ(array.rank, 2);
  EXPECT_EQ(array.shape[0], std::ssize(kIds));
  EXPECT_EQ(array.dtype, FOCUS_FLOAT32);
  const auto* const numbers = static_cast<const float*>(array.data);
  std::vector<float> copy(numbers, numbers + array.shape[0] * array.shape[1]);
  EXPECT_EQ(focus_value_free(value), FOCUS_OK);
  return copy;
}

TEST_F(CInterface, LogitsAreThoseOfTheLibrary) {
  focus_model* const model = open();
  const std::vector<float> found = logits_of(model);
  const LoadedModel loaded = focus::open(base());
  const NoGrad guard;
  const Tensor wanted = loaded.decoder->logits(loaded.decoder->hidden_states(kIds, 1)).value();
  EXPECT_TRUE(std::ranges::equal(found, wanted.span()));
  focus_value* rows = nullptr;
  ASSERT_EQ(focus_model_logits(model, kPrompt, 5, &rows), FOCUS_OK);
  focus_array array;
  ASSERT_EQ(focus_value_array(rows, &array), FOCUS_OK);
  EXPECT_EQ(array.shape[0], 2);
  EXPECT_EQ(focus_value_free(rows), FOCUS_OK);
  EXPECT_EQ(focus_model_close(model), FOCUS_OK);
}

TEST_F(CInterface, HandlesThatAreClosedOrNoneAreErrors) {
  focus_model* const model = open();
  EXPECT_EQ(focus_model_close(model), FOCUS_OK);
  focus_value* value = nullptr;
  expect_refused([&] { return focus_model_info(model, &value); }, "model: it was closed");
  expect_refused([&] { return focus_model_close(model); }, "closed");
  expect_refused([&] { return focus_model_info(nullptr, &value); }, "NULL");
  // A value's handle is no model's.
  ASSERT_EQ(focus_machine(&value), FOCUS_OK);
  expect_refused([&] { return focus_model_close(reinterpret_cast<focus_model*>(value)); }, "model");
  EXPECT_EQ(focus_value_free(value), FOCUS_OK);
  EXPECT_EQ(focus_value_free(value), FOCUS_FAILED);
}

TEST_F(CInterface, WhatIsWrongIsSaidInALine) {
  focus_model* const model = open();
  focus_value* value = nullptr;
  const std::int32_t bad[] = {5, 100000};
  expect_refused([&] { return focus_model_logits(model, {bad, 2}, 0, &value); }, "100000");
  expect_refused([&] { return focus_model_logits(model, {nullptr, 2}, 0, &value); }, "ids");
  expect_refused([&] { return focus_model_logits(model, {bad, 0}, 0, &value); }, "at least one");
  expect_refused([&] { return focus_model_logits(model, kPrompt, 7, &value); }, "below 7");
  expect_refused([&] { return focus_model_logits(model, kPrompt, 0, nullptr); }, "result");
  const std::vector<std::int32_t> many(100000, 1);
  expect_refused(
      [&] {
        return focus_model_logits(model, {many.data(), many.size()}, 0, &value);
      },
      "positions");
  expect_refused([&] { return focus_model_set_attention(model, "summary:8"); }, "attention");
  expect_refused(
      [&] {
        return focus_model_generate(model, kPrompt, R"({"temprature": 1})", nullptr, nullptr,
                                    &value);
      },
      "temperature");
  expect_refused(
      [&] { return focus_model_generate(model, kPrompt, "[1]", nullptr, nullptr, &value); },
      "JSON object");
  expect_refused([&] { return focus_model_attach(model, "/nowhere.h5"); }, "/nowhere.h5");
  expect_refused([&] { return focus_model_save_adapter(model, "a.h5"); }, "no adapter");
  expect_refused([&] { return focus_set_threads(-1); }, "threads");
  EXPECT_EQ(value, nullptr);
  EXPECT_EQ(focus_model_close(model), FOCUS_OK);
}

TEST_F(CInterface, FitsEvaluatesAndSavesGroups) {
  focus_model* const model = open();
  const std::string document = text();
  const char* const documents[] = {document.c_str()};
  const focus_texts texts = {nullptr, 0, documents, 1};
  std::vector<double> shares;
  const focus_callback note = [](const char* event, void* user) {
    static_cast<std::vector<double>*>(user)->push_back(Json::parse(event)["share"]);
    return 0;
  };
  focus_value* value = nullptr;
  const char* const groups = R"({"num_groups": 4, "num_selected_groups": 2, "local_window": 4,
    "block": 4, "context": 64, "tokens": 512})";
  ASSERT_EQ(focus_model_fit(model, texts, groups, note, &shares, &value), FOCUS_OK)
      << focus_error();
  EXPECT_EQ(json_of(value)["num_groups"], 4);
  EXPECT_EQ(shares.back(), 1);
  ASSERT_EQ(focus_model_set_attention(model, "summary:1"), FOCUS_OK) << focus_error();
  const std::string settings = R"({"context": 64, "against": "dense", "max_tokens": 300})";
  ASSERT_EQ(focus_model_evaluate(model, texts, settings.c_str(), nullptr, nullptr, &value),
            FOCUS_OK)
      << focus_error();
  const Json row = json_of(value)["rows"][0];
  EXPECT_LT(row["pairs_attended"], 1);
  EXPECT_GT(row["kl"], 0);
  // A fit that is stopped leaves what attended.
  const focus_callback stop = [](const char*, void*) { return 1; };
  focus_value* none = nullptr;
  EXPECT_EQ(focus_model_fit(model, texts, groups, stop, nullptr, &none), FOCUS_STOPPED);
  // As the library has it.
  LoadedModel loaded = focus::open(base());
  const std::string saved = (*folder_ / "keys.h5").string();
  ASSERT_EQ(focus_model_save_adapter(model, saved.c_str()), FOCUS_OK) << focus_error();
  load_adapter(saved, loaded);
  EXPECT_EQ(row["perplexity"], evaluate(loaded, "summary:1", {.documents = {document}},
                                        {.context = 64, .max_tokens = 300})
                                   .perplexity);
  // A foreign file is not replaced.
  write_text(*folder_ / "notes.txt", "mine");
  expect_refused([&] { return focus_model_save_adapter(model, (*folder_ / "notes.txt").c_str()); },
                 "notes.txt");
  // Off again: the base's bits.
  const std::vector<float> sparse = logits_of(model);
  ASSERT_EQ(focus_model_detach(model), FOCUS_OK) << focus_error();
  focus_model* const fresh = open();
  EXPECT_EQ(logits_of(model), logits_of(fresh));
  EXPECT_EQ(focus_model_close(fresh), FOCUS_OK);
  EXPECT_EQ(focus_model_close(model), FOCUS_OK);
}

TEST_F(CInterface, CallbacksAndOtherThreadsStopWork) {
  focus_model* const model = open();
  const std::string document = text();
  const char* const documents[] = {document.c_str()};
  focus_value* value = nullptr;
  const focus_callback stop = [](const char*, void*) { return 1; };
  EXPECT_EQ(focus_model_evaluate(model, {nullptr, 0, documents, 1}, R"({"context": 64})", stop,
                                 nullptr, &value),
            FOCUS_STOPPED);
  EXPECT_EQ(value, nullptr);
  // A callback that stops a text has what was made.
  ASSERT_EQ(
      focus_model_generate(model, kPrompt, R"({"max_new_tokens": 50})", stop, nullptr, &value),
      FOCUS_OK)
      << focus_error();
  EXPECT_EQ(json_of(value)["stop"], "caller");
  const focus_callback cancel = [](const char*, void* user) {
    std::thread([=] { focus_model_cancel(static_cast<focus_model*>(user)); }).join();
    return 0;
  };
  value = nullptr;
  EXPECT_EQ(
      focus_model_generate(model, kPrompt, R"({"max_new_tokens": 50})", cancel, model, &value),
      FOCUS_STOPPED);
  EXPECT_EQ(value, nullptr);
  // Its own callback would wait for itself.
  const focus_callback ask = [](const char*, void* user) {
    focus_value* info = nullptr;
    expect_refused([&] { return focus_model_info(static_cast<focus_model*>(user), &info); },
                   "callback");
    expect_refused([&] { return focus_model_close(static_cast<focus_model*>(user)); }, "callback");
    return 1;
  };
  ASSERT_EQ(focus_model_generate(model, kPrompt, nullptr, ask, model, &value), FOCUS_OK);
  EXPECT_EQ(focus_value_free(value), FOCUS_OK);
  EXPECT_EQ(focus_model_close(model), FOCUS_OK);
}

TEST_F(CInterface, ThreadsShareModelsAndHaveModelsOfTheirOwn) {
  focus_model* const shared = open();
  const std::vector<float> wanted = logits_of(shared);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      focus_model* const own = open();
      for (int round = 0; round < 5; ++round) {
        if (logits_of(shared) != wanted || logits_of(own) != wanted) ++wrong;
        focus_value* made = nullptr;
        if (focus_model_generate(shared, kPrompt, R"({"max_new_tokens": 4})", nullptr, nullptr,
                                 &made) != FOCUS_OK ||
            text_of(made).empty())
          ++wrong;
        // Each thread has its own message.
        if (focus_model_set_attention(own, "nonsense") != FOCUS_FAILED ||
            std::string(focus_error()).find("nonsense") == std::string::npos)
          ++wrong;
      }
      if (focus_model_close(own) != FOCUS_OK) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(focus_model_close(shared), FOCUS_OK);
}

TEST_F(CInterface, ARunStopsAndGoesOn) {
  const auto settings = [&](const char* out) {
    return Json{{"base", base()},
                {"method", "lora"},
                {"out", (*folder_ / out).string()},
                {"steps", 4},
                {"lora", {{"r", 2}, {"target_modules", {"q_proj"}}}},
                {"data",
                 {{"train", {(*folder_ / "text.txt").string()}},
                  {"context", 32},
                  {"cache_dir", (*folder_ / "cache").string()}}}}
        .dump();
  };
  std::vector<std::string> events;
  const focus_callback note = [](const char* event, void* user) {
    static_cast<std::vector<std::string>*>(user)->push_back(Json::parse(event)["event"]);
    return 0;
  };
  const auto train = [&](const char* out, const char* options) {
    focus_value* value = nullptr;
    EXPECT_EQ(focus_train(nullptr, settings(out).c_str(), options, note, &events, &value), FOCUS_OK)
        << focus_error();
    return json_of(value);
  };
  EXPECT_TRUE(train("whole", nullptr)["finished"]);
  EXPECT_EQ(std::ranges::count(events, "step"), 4);
  const Json half = train("parts", R"({"stop_at": 2})");
  EXPECT_FALSE(half["finished"]);
  EXPECT_EQ(half["step"], 2);
  EXPECT_TRUE(train("parts", R"({"resume": true})")["finished"]);
  EXPECT_EQ(read_text(*folder_ / "whole/adapter_model.safetensors"),
            read_text(*folder_ / "parts/adapter_model.safetensors"));
  focus_value* value = nullptr;
  expect_refused(
      [&] { return focus_train(nullptr, R"({"stepz": 3})", nullptr, nullptr, nullptr, &value); },
      "steps");
}

}  // namespace
}  // namespace focus
