#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/files/checksum.h"
#include "data/tensors/safetensors.h"
#include "data/tensors/store.h"
#include "focus/training/metrics.h"
#include "tests/support/compare.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

// What the tests of the built program share: a way to call it, texts and tiny models made by the
// program itself once per test program, and ways to compare what it writes.
namespace focus {

namespace fs = std::filesystem;

inline constexpr double kRunSeconds = 60;  // far more than any run here takes

/// The words of a command line, as a list or as a line that words() reads.
struct Words : std::vector<std::string> {
  using std::vector<std::string>::vector;
  Words(std::vector<std::string> list) : std::vector<std::string>(std::move(list)) {}
  Words(const char* line);
};

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_TRUE(contains(text, part)) << "no \"" << part << "\" in: " << text;
}

inline nlohmann::json read_json(const fs::path& path) {
  return nlohmann::json::parse(read_text(path));
}

class Cli {
 public:
  /// The one of this test program.
  static Cli& instance() {
    static Cli cli;
    return cli;
  }

  std::unique_ptr<Process> start(const Words& arguments) const {
    return start_by({}, arguments, {});
  }
  /// The same behind the words of a launcher, with its environment.
  std::unique_ptr<Process> start_by(
      const Words& launcher, const Words& arguments,
      std::vector<std::pair<std::string, std::string>> environment) const {
    environment.insert(environment.end(),
                       {{"OMP_NUM_THREADS", "1"},
                        {"XDG_CACHE_HOME", (folder_ / "cache").string()},
                        // libhdf5 leaks a little where it refuses a file, and so does glibc of a
                        // locale's name; our own leaks still count.
                        {"LSAN_OPTIONS",
                         "print_suppressions=0:suppressions=" + (folder_ / "leaks.txt").string()}});
    return std::make_unique<Process>(
        launcher + Words{std::string(FOCUS_BINARY_DIR) + "/focus"} + arguments, environment);
  }
  ProcessResult run(const Words& arguments) const { return start(arguments)->wait(kRunSeconds); }
  /// A run that the test needs; its output is in the error where it fails.
  ProcessResult must_run(const Words& arguments) const {
    ProcessResult result = run(arguments);
    if (result.status != 0 || result.timed_out)
      throw std::runtime_error(fmt::format("focus {} ended with {}:\n{}{}", arguments.at(0),
                                           result.status, result.out, result.err));
    return result;
  }
  /// The figures that a command writes with --json.
  nlohmann::json figures(const Words& arguments) const {
    const std::string path = fresh("figures.json");
    must_run(arguments + Words{"--json", path});
    return read_json(path);
  }
  /// The rows that `focus eval` writes, and the perplexity of the first.
  nlohmann::json rows(const Words& arguments) const {
    return figures(Words{"eval"} + arguments).at("rows");
  }
  double perplexity(const Words& arguments) const { return rows(arguments).at(0).at("perplexity"); }

  /// A path that nothing has used yet.
  std::string fresh(const std::string& name) const {
    return (folder_ / fmt::format("{}-{}", count_++, name)).string();
  }

  std::string train_text() const { return (folder_ / "train.txt").string(); }  // 23 windows of 64
  std::string valid_text() const { return (folder_ / "valid.txt").string(); }
  /// A tokenizer of 96 ids, one per printable ASCII character and the line break: as many as the
  /// golden models have.
  std::string ascii_tokenizer() const { return (folder_ / "ascii" / "tokenizer.json").string(); }

  /// A short run in windows of 64 bytes; later keys win.
  Words config(const Words& more) const {
    return Words{"train",
                 "data.train=" + train_text(),
                 "data.valid=" + valid_text(),
                 "data.context=64",
                 "data.batch=2",
                 "steps=8",
                 "log_every=1",
                 "eval_every=0",
                 "eval_windows=2",
                 "checkpoint_every=0",
                 "focus.num_groups=3",
                 "focus.tokens.routing_dim=8",
                 "focus.local_window=8",
                 "optim.warmup_steps=2",
                 "optim.lr=0.01"} +
           more;
  }
  Words scratch(const Words& more) const {
    return config(Words{"method=scratch", "tokenizer=bytes", "model.hidden_size=32",
                        "model.num_hidden_layers=2", "model.initializer_range=0.15"} +
                  more);
  }
  Words retrofit(const Words& more) const { return config(Words{"base=" + base()} + more); }

  /// A trained model, and adapters on it.
  std::string base() const {
    return once("base", [&](const std::string& out) {
      must_run(scratch({"out=" + out, "steps=20"}));
      return out + "/model.h5";
    });
  }
  std::string other_base() const {
    return once("other", [&](const std::string& out) {
      must_run(scratch({"out=" + out, "steps=2", "model.model_type=gpt2", "seed=7"}));
      return out + "/model.h5";
    });
  }
  std::string adapter() const {
    return once("carried", [&](const std::string& out) {
      must_run(retrofit({"out=" + out, "steps=20"}));
      return out + "/focus.h5";
    });
  }
  std::string sequence_adapter() const {
    return once("sequence", [&](const std::string& out) {
      must_run(retrofit({"out=" + out, "focus.tokens.balance=sequence"}));
      return out + "/focus.h5";
    });
  }
  /// Groups of keys on the base: 4 for each key head, fitted on windows of 64.
  std::string keys() const {
    return once("keys", [&](const std::string& out) {
      must_run(fit({"--out", out + ".h5"}));
      return out + ".h5";
    });
  }
  Words fit(const Words& more) const {
    return Words("fit {base} --text {train} --num-groups 4 --tokens 512 --local-window 4") +
           "--block 4 --context 64" + more;
  }
  std::string lora() const {
    return once("lora", [&](const std::string& out) {
      must_run(retrofit({"out=" + out, "method=lora", "lora.r=2", "optim.lr=0.02"}));
      return out + "/lora.h5";
    });
  }

  /// The path that words() writes for `name`.
  std::string named(const std::string& name) const {
    static const std::map<std::string, std::string (Cli::*)() const> paths = {
        {"train", &Cli::train_text},
        {"valid", &Cli::valid_text},
        {"ascii", &Cli::ascii_tokenizer},
        {"base", &Cli::base},
        {"other", &Cli::other_base},
        {"adapter", &Cli::adapter},
        {"sequence", &Cli::sequence_adapter},
        {"keys", &Cli::keys},
        {"lora", &Cli::lora}};
    return (this->*paths.at(name))();
  }

 private:
  Cli() {
    write_text(folder_ / "leaks.txt", "leak:libhdf5\nleak:argz_add_sep\n");
    must_run({"corpus", "--out", (folder_ / "corpus.txt").string(), "--documents", "4"});
    const std::string text = read_text(folder_ / "corpus.txt");
    write_text(train_text(), text.substr(0, 1500));
    write_text(valid_text(), text.substr(text.size() - 700));
    nlohmann::json vocab = nlohmann::json::object();
    vocab["\u010A"] = 0;  // the line break, as byte-level tokenizers write it
    vocab["\u0120"] = 1;  // the space
    for (char c = '!'; c <= '~'; ++c) vocab[std::string(1, c)] = c - '!' + 2;
    const nlohmann::json byte_level = {{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", true},
                                       {"use_regex", true}};
    fs::create_directory(folder_ / "ascii");
    write_text(
        ascii_tokenizer(),
        nlohmann::json(
            {{"version", "1.0"},
             {"truncation", nullptr},
             {"padding", nullptr},
             {"added_tokens", nlohmann::json::array()},
             {"normalizer", nullptr},
             {"pre_tokenizer", byte_level},
             {"post_processor", nullptr},
             {"decoder", byte_level},
             {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}})
            .dump());
  }

  template <class Make>
  std::string once(const std::string& name, Make&& make) const {
    auto found = made_.find(name);
    if (found == made_.end()) found = made_.emplace(name, make(fresh(name))).first;
    return found->second;
  }

  TempFolder folder_;
  mutable int count_ = 0;
  mutable std::map<std::string, std::string> made_;
};

inline Cli& cli() { return Cli::instance(); }

/// A line's words, parted at blanks. {base}, {valid} and so on become the Cli's paths of these
/// names, {} the next of `values`, which may have blanks.
template <class... Values>
Words words(const std::string& line, const Values&... values) {
  const std::vector<std::string> all = {std::string(values)...};
  std::size_t used = 0;
  Words made;
  std::istringstream stream(line);
  for (std::string word; stream >> word; made.push_back(word))
    for (auto open = word.find('{'); open != std::string::npos; open = word.find('{', open)) {
      const auto close = word.find('}', open);
      const std::string name = word.substr(open + 1, close - open - 1);
      const std::string value = name.empty() ? all.at(used++) : cli().named(name);
      word.replace(open, close + 1 - open, value);
      open += value.size();
    }
  return made;
}
inline Words::Words(const char* line) : Words(words(std::string(line))) {}

/// Path below `folder` -> checksum of each file; empty for a folder that is not there.
inline std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> files;
  if (!fs::is_directory(folder)) return files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    files[fs::relative(entry.path(), folder).string()] =
        entry.is_regular_file() ? xxh3_file_hex(entry.path()) : "folder";
  return files;
}

/// A run must be refused: exit status 1, and after any notices one line on stderr that holds all of
/// `parts`.
inline void expect_refused(const Words& arguments, const std::vector<std::string>& parts) {
  const ProcessResult result = Cli::instance().run(arguments);
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_FALSE(result.timed_out);
  std::string error = result.err;
  while (error.starts_with("notice: ")) error.erase(0, error.find('\n') + 1);
  EXPECT_EQ(std::ranges::count(error, '\n'), 1) << error;
  EXPECT_TRUE(error.starts_with("focus " + arguments.at(0) + ": ")) << error;
  expect_parts(error, parts);
}

/// The records of a run's metrics.jsonl without what depends on the clock.
inline std::vector<nlohmann::ordered_json> metrics_of(const fs::path& run) {
  auto records = read_metrics(run / "metrics.jsonl");
  for (auto& record : records)
    for (const char* key : {"tokens_per_second", "wait_seconds", "exchange_seconds"})
      record.erase(key);
  return records;
}

/// Two stores must hold the same data sets with the same bits; /config.yaml, which names the run's
/// folder, may differ.
inline void expect_same_store(const fs::path& actual, const fs::path& expected) {
  const StoreReader a(actual), b(expected);
  ASSERT_EQ(a.all_datasets(), b.all_datasets()) << actual;
  std::size_t tensors = 0;
  for (const std::string& path : b.all_datasets()) {
    if (path == "/config.yaml") continue;
    const auto slash = path.rfind('/');
    if (path.find('.', slash) != std::string::npos) {
      EXPECT_EQ(a.text(path), b.text(path)) << actual << ": " << path;
    } else {
      EXPECT_TRUE(same_bits(a.tensor(path), b.tensor(path))) << actual << ": bits of " << path;
      ++tensors;
    }
    const std::string group = path.substr(0, std::max<std::size_t>(1, slash));
    if (a.has_attribute(group, "updates")) {
      EXPECT_EQ(a.int_attribute(group, "updates"), b.int_attribute(group, "updates")) << group;
    }
  }
  EXPECT_GT(tensors, 0u) << actual << ": no tensor in it";
}

/// Two runs must have logged the same figures and written the same result.
inline void expect_same_run(const fs::path& actual, const fs::path& expected) {
  EXPECT_EQ(metrics_of(actual), metrics_of(expected));
  int results = 0;
  for (const auto& entry : fs::directory_iterator(expected)) {
    if (entry.path().extension() != ".h5") continue;
    const fs::path result = actual / entry.path().filename();
    ASSERT_TRUE(fs::exists(result)) << result;
    expect_same_store(result, entry.path());
    ++results;
  }
  EXPECT_GT(results, 0) << expected;
}

/// The rows that a comparison has written.
inline std::vector<nlohmann::json> compare_rows(const fs::path& out) {
  std::vector<nlohmann::json> rows;
  for (const std::string& line : lines_of(read_text(out / "compare.jsonl")))
    rows.push_back(nlohmann::json::parse(line));
  return rows;
}

/// A comparison's config, in which {base}, {train} and so on are paths, {data} the tests' text.
inline std::string compare_config(std::string text) {
  static const std::string data = "{train: [{train}], valid: [{valid}], context: 64, batch: 2}";
  const std::string path = cli().fresh("compare.yaml");
  if (const auto at = text.find("{data}"); at != std::string::npos) text.replace(at, 6, data);
  for (const char* name : {"train", "valid", "base"}) {
    const std::string word = std::string("{") + name + "}";
    for (std::size_t at; (at = text.find(word)) != std::string::npos;)
      text.replace(at, word.size(), cli().named(name));
  }
  write_text(path, text);
  return path;
}

/// The same without what depends on the clock and the machine.
inline std::vector<nlohmann::json> rows_without_rates(const fs::path& out) {
  std::vector<nlohmann::json> rows = compare_rows(out);
  for (nlohmann::json& row : rows)
    for (const char* key :
         {"seconds", "tokens_per_second", "train_tokens_per_second", "train_peak_bytes"})
      row.erase(key);
  return rows;
}

/// The folder of a golden model.
inline std::string golden_arch(const std::string& name) {
  return std::string(FOCUS_SOURCE_DIR) + "/tests/golden/arch/" + name;
}

/// A copy of it with a tokenizer of its 96 ids, and further files.
inline std::string model_folder(const std::string& name = "llama_gqa",
                                const std::map<std::string, std::string>& files = {}) {
  const std::string folder = cli().fresh("model");
  fs::copy(golden_arch(name), folder);
  fs::copy_file(cli().ascii_tokenizer(), folder + "/tokenizer.json");
  for (const auto& [file, text] : files) write_text(folder + "/" + file, text);
  return folder;
}

/// Sets a key of a JSON file.
inline void set_json(const std::string& path, const std::string& key, const nlohmann::json& value) {
  auto json = nlohmann::ordered_json::parse(read_text(path));
  json[key] = value;
  write_text(path, json.dump());
}

/// Changes the weights in a folder by change(name, tensor).
template <class Change>
void change_weights(const std::string& folder, Change&& change) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  {
    const SafetensorsFile file(folder + "/model.safetensors");
    for (const TensorInfo& info : file.tensors()) {
      tensors.emplace_back(info.name, file.read(info.name).clone());
      change(info.name, tensors.back().second);
    }
  }
  write_safetensors(folder + "/model.safetensors", std::move(tensors), {{"format", "pt"}});
}

}  // namespace focus
