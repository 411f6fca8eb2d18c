#include "focus/generation/cache_files.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "data/files/durable_file.h"
#include "data/files/input_file.h"
#include "focus/generation/scheduler.h"
#include "tests/support/compare.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_focus.h"

namespace focus {
namespace {

namespace fs = std::filesystem;
using Kind = AttentionKind;
using Part = CachedDecoder::Part;
using TokenIds = std::vector<std::int32_t>;

constexpr const char* kIdentity = "model a\nattention dense\n";

/// What a decoder makes of the next tokens of a cache, one `also` beside it.
Tensor rows_of(CachedDecoder& decoder, SequenceCache& cache, std::span<const std::int32_t> ids,
               SequenceCache* also = nullptr) {
  const NoGrad guard;
  return decoder.hidden_states(std::array{Part{&cache, ids, also}});
}

/// Saves into a new file and waits.
void save(const fs::path& path, SequenceCache& cache, SequenceCache* also = nullptr) {
  fs::remove(path);
  CacheFiles files(path, kIdentity);
  EXPECT_TRUE(files.kept().empty());
  files.save(cache, also);
  files.finish();
  ASSERT_EQ(files.kept().size(), 1u);
  EXPECT_EQ(files.kept()[0].ids, cache.ids());
  EXPECT_EQ(files.kept()[0].bytes, fs::file_size(path));
}

/// Fills a cache from the file.
void load(const fs::path& path, CachedDecoder& decoder, SequenceCache& cache,
          SequenceCache* also = nullptr) {
  const NoGrad guard;
  CacheFiles files(path, kIdentity);
  ASSERT_EQ(files.kept().size(), 1u);
  ASSERT_TRUE(files.load(files.kept()[0], decoder, cache, also));
}

/// A cache out of a file has the bytes, and what comes next the bits, of the one that was saved.
void expect_same(const fs::path& path, CachedDecoder& decoder, SequenceCache& cache,
                 SequenceCache& empty, const std::string& what) {
  const auto ids = random_ids(100, 37, 7);
  std::size_t at = 0;
  const auto next = [&](std::size_t count) { return std::span(ids).subspan(at, count); };
  for (const std::size_t piece : {40, 1, 6, 13}) {
    rows_of(decoder, cache, next(piece));
    at += piece;
  }
  save(path, cache);
  load(path, decoder, empty);
  EXPECT_EQ(empty.size(), cache.size()) << what;
  EXPECT_EQ(empty.least_size(), cache.least_size()) << what;
  save(path.string() + ".again", empty);
  EXPECT_EQ(read_file(path), read_file(path.string() + ".again")) << what;
  for (const std::size_t piece : {1, 5, 1, 1}) {
    EXPECT_TRUE(
        same_bits(rows_of(decoder, empty, next(piece)), rows_of(decoder, cache, next(piece))))
        << what << ", token " << at;
    at += piece;
  }
  for (SequenceCache* of : {&cache, &empty}) of->truncate(std::max<Index>(47, cache.least_size()));
  at = cache.size();
  for (const std::size_t piece : {1, 30})
    EXPECT_TRUE(
        same_bits(rows_of(decoder, empty, next(piece)), rows_of(decoder, cache, next(piece))))
        << what << ", after tokens were taken back";
}

std::vector<std::pair<FocusConfig, AttentionSpec>> attentions() {
  std::vector<std::pair<FocusConfig, AttentionSpec>> all;
  for (const AttentionSpec& mode : cached_modes()) all.emplace_back(tiny_focus(), mode);
  all.emplace_back(tiny_focus(), AttentionSpec{.kind = Kind::hard, .gate = HardGate::drop});
  all.emplace_back(tiny_focus(), AttentionSpec{.kind = Kind::local});
  all.emplace_back(tiny_keys(), AttentionSpec{.kind = Kind::summary});
  all.emplace_back(tiny_keys(), AttentionSpec{.kind = Kind::local});
  all.emplace_back(
      tiny_keys(),
      AttentionSpec{
          .kind = Kind::summary,
          .summary = {
              .local_window = 3, .block = 4, .sinks = 2, .num_selected_groups = 1, .width = 0.0}});
  return all;
}

TEST(CacheFiles, EveryCacheContinuesWithTheBitsOfTheSavedOne) {
  const TempFolder folder;
  constexpr CacheDtype kDtypes[] = {CacheDtype::float32, CacheDtype::float16, CacheDtype::q8_0};
  std::size_t first = 0;
  for (const std::string& type : family_names()) {
    std::size_t n = first++;  // each family and each attention has all numbers
    for (const auto& [config, mode] : attentions()) {
      TinyFocus model(type, config);
      CachedDecoder decoder(model.decoder, &*model.focus);
      std::vector<CacheDtype> dtypes{kDtypes[n % 3]};
      const Index undo = n++ % 2 == 0 ? 0 : 20;
      const bool keys = config.grouping.name == "keys";
      if (keys && mode.kind == Kind::summary) dtypes.push_back(CacheDtype::q4);
      if (!keys) {
        EXPECT_THROW(decoder.cache(mode, CacheDtype::q4), std::invalid_argument) << mode.name();
      }
      for (const CacheDtype dtype : dtypes) {
        SequenceCache cache = decoder.cache(mode, dtype, undo), empty = cache;
        expect_same(folder / "one.focuskv", decoder, cache, empty,
                    fmt::format("{}, {}, {}, undo {}", type, mode.name(), name_of(dtype), undo));
      }
    }
  }
}

TEST(CacheFiles, KeepsTheCacheOfDraftsToo) {
  const TempFolder folder;
  const auto ids = random_ids(60, 37, 7);
  TinyFocus model("llama", tiny_keys());
  CachedDecoder decoder(model.decoder, &*model.focus);
  SequenceCache dense = decoder.cache({.kind = Kind::dense}), other = dense;
  SequenceCache drafts = decoder.cache({.kind = Kind::summary}), others = drafts;
  rows_of(decoder, dense, std::span(ids).first(30), &drafts);
  rows_of(decoder, dense, std::span(ids).subspan(30, 10), &drafts);  // wait for more, unread
  save(folder / "a", dense, &drafts);
  load(folder / "a", decoder, other, &others);
  const auto next = std::span(ids).subspan(40, 5);
  EXPECT_TRUE(same_bits(rows_of(decoder, others, next), rows_of(decoder, drafts, next)));
  EXPECT_TRUE(same_bits(rows_of(decoder, other, next), rows_of(decoder, dense, next)));
}

TEST(CacheFiles, TextsRotatedAsLongerOnesContinueToo) {
  const TempFolder folder;
  TinyFocus model(tiny_longrope());
  CachedDecoder decoder(model.decoder, &*model.focus);
  for (const AttentionSpec& mode : cached_modes()) {
    SequenceCache cache = decoder.cache(mode), empty = cache;
    expect_same(folder / "a", decoder, cache, empty, mode.name());
  }
}

/// What is refused, with a line that has `why`.
void expect_refused(const fs::path& path, const std::string& why,
                    const std::string& identity = kIdentity) {
  try {
    const CacheFiles files(path, identity);
    FAIL() << "taken for a cache; expected: " << why;
  } catch (const std::runtime_error& error) {
    const std::string line = error.what();
    EXPECT_NE(line.find(why), std::string::npos) << line;
    EXPECT_NE(line.find(path.filename()), std::string::npos) << line;
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
  }
}

TEST(CacheFiles, WhatIsDamagedOrOfAnotherIsRefused) {
  const TempFolder folder;
  const fs::path path = folder / "a.focuskv";
  TinyFocus model("llama", tiny_keys());
  CachedDecoder decoder(model.decoder, &*model.focus);
  SequenceCache cache = decoder.cache({.kind = Kind::summary}, CacheDtype::float16);
  rows_of(decoder, cache, random_ids(40, 37, 7));
  save(path, cache);
  const std::string whole = read_file(path);
  expect_refused(path, "a prompt cache of attention dense, not of attention hard;",
                 "model a\nattention hard\n");
  expect_refused(path, "a prompt cache of model a, not of model b;", "model b\n");
  for (const std::size_t size : {0, 1, 7})
    write_file_durably(path, whole.substr(0, size)),
        expect_refused(path, "it is not a prompt cache;");
  write_file_durably(path, std::string_view("GGUF, and something else"));
  expect_refused(path, "it is not a prompt cache;");
  const std::string damaged = "the prompt cache is damaged or incomplete; delete it";
  for (const std::size_t size : {std::size_t{8}, std::size_t{60}, whole.size() - 1})
    write_file_durably(path, whole.substr(0, size)), expect_refused(path, damaged);
  write_file_durably(path, whole + "x");
  expect_refused(path, damaged);
  // A flipped bit anywhere: each byte of the head, and then some.
  for (std::size_t at = 0; at < whole.size(); at += at < 400 || at + 100 > whole.size() ? 1 : 97) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    std::ofstream(path, std::ios::binary) << flipped;
    expect_refused(path, at < 8 ? "it is not a prompt cache;" : damaged);
    if (HasFailure()) FAIL() << "byte " << at;
  }
  expect_refused(folder / "none" / "a", "the folder does not exist");
  expect_refused(folder.path(), "it is a folder");
  EXPECT_THROW(CacheFiles(path, kIdentity, 100), std::runtime_error);  // a file, no folder
}

/// Bytes as tokens, and a scheduler whose prompts are saved.
struct Saving {
  explicit Saving(const AttentionSpec& mode = {.kind = Kind::dense})
      : model("llama"), with{model.decoder, &*model.focus, *tokenizer, {}, mode} {}
  Generated ask(const TokenIds& prompt, CacheFiles* files, Index tokens = 8) {
    with.files = files;
    Scheduler scheduler(with, {.undo = CacheFiles::kUndo});
    auto ticket = *scheduler.submit(prompt, {.max_new_tokens = tokens, .top_logprobs = 0});
    while (scheduler.step()) {
    }
    if (files != nullptr) files->finish();
    return ticket.result.get();
  }
  std::unique_ptr<Tokenizer> tokenizer = load_tokenizer("bytes");
  TinyFocus model;
  GenerationModel with;
};

TokenIds question(const TokenIds& text, std::uint64_t seed) {
  TokenIds prompt = text;
  prompt.push_back(static_cast<std::int32_t>(seed));  // no two are alike
  for (const std::int32_t id : random_ids(5, 37, seed)) prompt.push_back(id);
  return prompt;
}

TEST(CacheFiles, ALaterSchedulerContinuesFromThem) {
  const TempFolder folder;
  for (const AttentionSpec& mode : cached_modes())
    for (const bool one : {true, false}) {
      Saving of(mode);
      const fs::path path = folder / (mode.name() + (one ? ".focuskv" : ""));
      const auto open = [&]() -> std::unique_ptr<CacheFiles> {
        if (one) return std::make_unique<CacheFiles>(path, kIdentity);
        return std::make_unique<CacheFiles>(path, kIdentity, 1 << 20);
      };
      const TokenIds text = random_ids(70, 37, 1);
      EXPECT_EQ(of.ask(question(text, 2), open().get()).reused_tokens, 0);
      // The bits of a scheduler that still has the first prompt.
      of.with.files = nullptr;
      Scheduler scheduler(of.with, {.undo = CacheFiles::kUndo});
      Generated kept;
      for (const std::uint64_t seed : {2, 3}) {
        auto ticket =
            *scheduler.submit(question(text, seed), {.max_new_tokens = 8, .top_logprobs = 0});
        while (scheduler.step()) {
        }
        kept = ticket.result.get();
      }
      for (int times = 0; times < 2; ++times) {
        const Generated again = of.ask(question(text, 3), open().get());
        EXPECT_EQ(again.reused_tokens, 70) << mode.name();
        EXPECT_EQ(again.ids, kept.ids);
        for (std::size_t t = 0; t < again.logprobs.size(); ++t)
          EXPECT_EQ(again.logprobs[t].logprob, kept.logprobs[t].logprob) << mode.name();
      }
      EXPECT_EQ(of.ask(question(text, 2), open().get()).reused_tokens,
                75);  // the file is as it was
      EXPECT_EQ(of.ask(random_ids(66, 37, 9), open().get()).reused_tokens, 0);
      EXPECT_EQ(of.ask(question(text, 2), open().get()).reused_tokens, one ? 0 : 75);
    }
}

TEST(CacheFiles, AFolderKeepsWhatWasUsedLast) {
  const TempFolder folder;
  Saving of;
  const auto text = [](std::uint64_t seed) { return random_ids(64, 37, seed); };
  std::uint64_t bytes = 0;
  {
    CacheFiles files(folder.path(), kIdentity, 1 << 20);
    of.ask(text(1), &files);
    of.ask({1, 2, 3}, &files);  // too short for a file
    ASSERT_EQ(files.kept().size(), 1u);
    bytes = files.kept()[0].bytes;
  }
  write_file_durably(folder / "mine.txt", std::string_view("a file of someone's"));
  write_file_durably(folder / "bad.focuskv", std::string_view("focuskv2 and no more"));
  CacheFiles files(folder.path(), kIdentity, 3 * bytes + 100);
  EXPECT_EQ(files.kept().size(), 1u);
  for (const std::uint64_t seed : {2, 3}) of.ask(text(seed), &files);
  EXPECT_EQ(of.ask(text(1), &files).reused_tokens, 63);
  EXPECT_EQ(of.ask(text(4), &files).reused_tokens, 0);
  EXPECT_FALSE(fs::exists(folder / "bad.focuskv"));
  EXPECT_EQ(of.ask(text(1), &files).reused_tokens, 63);
  EXPECT_EQ(of.ask(text(2), &files).reused_tokens, 0);  // 3 goes for it
  EXPECT_EQ(of.ask(text(4), &files).reused_tokens, 63);
  EXPECT_EQ(files.kept().size(), 3u);
  EXPECT_TRUE(fs::exists(folder / "mine.txt"));
  // Another model's are not used, but count.
  CacheFiles other(folder.path(), "model b\n", 3 * bytes + 100);
  EXPECT_TRUE(other.kept().empty());
  EXPECT_EQ(of.ask(text(4), &other).reused_tokens, 0);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 4);
  // A notice names one that is damaged meanwhile, and the prompt is computed.
  for (const auto& kept : files.kept()) std::ofstream(kept.path, std::ios::app) << "x";
  EXPECT_EQ(of.ask(text(4), &files).reused_tokens, 0);
  CacheFiles small(folder.path(), kIdentity, 10);  // nothing has room
  of.ask(text(1), &small);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(CacheFiles, AFileThatCannotBeWrittenFailsTheNextTextAlone) {
  const TempFolder folder;
  const fs::path within = folder / "within";
  fs::create_directory(within);
  Saving of;
  CacheFiles files(within / "a.focuskv", kIdentity);
  of.with.files = &files;
  Scheduler scheduler(of.with, {.undo = CacheFiles::kUndo});
  fs::remove(within);
  for (const std::uint64_t seed : {1, 2, 3}) {
    auto ticket = *scheduler.submit(random_ids(40, 37, seed), {.max_new_tokens = 2});
    while (scheduler.step()) {
    }
    if (seed == 2)
      EXPECT_THROW(ticket.result.get(), std::runtime_error);
    else
      EXPECT_EQ(ticket.result.get().ids.size(), 2u);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it has been tried by then
  }
}

TEST(CacheFiles, AKilledWriterLeavesTheOldFileOrTheNew) {
  const TempFolder folder;
  const fs::path path = folder / "a.focuskv";
  TinyFocus model("llama");
  CachedDecoder decoder(model.decoder, nullptr);
  SequenceCache caches[] = {decoder.cache({.kind = Kind::dense}),
                            decoder.cache({.kind = Kind::dense})};
  for (std::uint64_t i = 0; i < 2; ++i) rows_of(decoder, caches[i], random_ids(120, 37, 7 + i));
  save(path, caches[0]);
  Rng rng(5);
  std::size_t seen[2] = {0, 0};
  for (int kills = 0; kills < 30; ++kills) {
    const pid_t child = fork();
    if (child == 0) {
      CacheFiles files(path, kIdentity);
      for (std::size_t i = 0;; ++i) files.save(caches[i % 2], nullptr);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(3000 + rng.below(20000)));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    CacheFiles files(path, kIdentity);
    ASSERT_EQ(files.kept().size(), 1u);
    const std::size_t which = files.kept()[0].ids == caches[1].ids() ? 1 : 0;
    ASSERT_EQ(files.kept()[0].ids, caches[which].ids());
    ++seen[which];
  }
  EXPECT_GT(seen[0], 0u);
  EXPECT_GT(seen[1], 0u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);  // nothing half-written
}

}  // namespace
}  // namespace focus
