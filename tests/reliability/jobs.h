#pragma once

#include <functional>
#include <limits>

#include "tests/support/cli.h"

// The commands that write files, small, and what they must have left in the end whatever befell
// them.
namespace focus {

/// A command that leaves something; `again` is what a user types after it has failed.
struct Job {
  using Command = std::function<Words(const std::string& out)>;

  std::string name;
  Command command, again;
  std::function<void(const std::string& out, const std::string& whole)> expect_same;
  std::string ending = "";                     // of `out`
  int few = 6;                                 // faults of a kind in the short campaign
  int many = std::numeric_limits<int>::max();  // in the long one
};
inline void PrintTo(const Job& job, std::ostream* stream) { *stream << job.name; }

inline Words train(const std::string& out) {
  return cli().retrofit({"out=" + out, "steps=4", "eval_every=2", "checkpoint_every=2"});
}

/// A LoRA of a GGUF file on prompts with completions, packed.
inline Words instruct(const std::string& out) {
  static const std::string base = [] {
    const std::string path = cli().fresh("base.gguf");
    cli().must_run({"export", cli().base(), "--gguf", path});
    return path;
  }();
  static const std::string examples = [] {
    const std::string path = cli().fresh("examples.jsonl");
    std::string lines;
    for (int i = 0; i < 40; ++i)
      lines +=
          fmt::format("{{\"prompt\": \"{0} and {0} is \", \"completion\": \"{1}\"}}\n", i, 2 * i);
    write_text(path, lines);
    return path;
  }();
  return cli().config({"method=lora", "base=" + base, "tokenizer=bytes", "data.train=" + examples,
                       "data.packing=documents", "steps=4", "checkpoint_every=2", "eval_every=2",
                       "out=" + out});
}

inline Words compare(const std::string& out) {
  static const std::string config = [] {
    const std::string path = cli().fresh("compare.yaml");
    write_text(path, fmt::format(R"(seeds: [1]
common:
  steps: 2
  data: {{train: [{0}], valid: [{1}], context: 64, batch: 2}}
  focus: {{num_groups: 3, local_window: 8, tokens: {{routing_dim: 8}}}}
  eval_windows: 1
runs:
  - {{name: retrofit, base: {2}}}
  - {{name: lora, base: {2}, method: lora}}
eval: {{valid: [{1}], context: 64, stride: 32, max_tokens: 128, attentions: [dense, trained]}}
)",
                                 cli().train_text(), cli().valid_text(), cli().base()));
    return path;
  }();
  return {"compare", config, "out=" + out};
}

inline const std::string& folder() {
  static const std::string out = [] {
    const std::string path = cli().fresh("folder");
    cli().must_run({"export", cli().base(), "--out", path});
    return path;
  }();
  return out;
}

inline Words export_both(const std::string& out) {
  return {"export", cli().base(), "--adapter", cli().adapter(), "--out", out};
}
inline Words export_gguf(const std::string& out) { return {"export", cli().base(), "--gguf", out}; }
inline Words import_folder(const std::string& out) { return {"import", folder(), "--out", out}; }

inline Words fit(const std::string& out) {
  return {"fit",          cli().base(), "--text",         cli().train_text(),
          "--num-groups", "4",          "--local-window", "8",
          "--block",      "8",          "--out",          out,
          "--tokens",     "512"};
}
inline Words merge(const std::string& out) {
  static const std::string adapter = [] {
    const std::string run = cli().fresh("lora");
    cli().must_run(cli().retrofit({"method=lora", "steps=2", "out=" + run}));
    return run + "/lora.h5";
  }();
  return {"merge", cli().base(), "--adapter", adapter, "--out", out};
}
inline Words groups(const std::string& out) {
  return {"groups",           cli().base(),   "--adapter", cli().adapter(), "--text",
          cli().valid_text(), "--max-tokens", "256",       "--out",         out};
}
inline Words tokenizer(const std::string& out) {
  return {"tokenizer", "train", "--text", cli().train_text(), "--out", out, "--vocab-size", "300"};
}
inline Words report(const std::string& out) {
  static const std::string run = [] {
    std::string made = cli().fresh("reported");
    cli().must_run(train(made));
    return made;
  }();
  return {"report", "--run", run, "--out", out};
}
inline Words corpus(const std::string& out) {
  return {"corpus", "--kind", "recall", "--documents", "50", "--out", out};
}

inline void expect_same_comparison(const std::string& out, const std::string& whole) {
  const auto rows_of = [](const fs::path& of) {
    std::vector<nlohmann::json> rows;
    for (const std::string& line : lines_of(read_text(of / "compare.jsonl"))) {
      rows.push_back(nlohmann::json::parse(line));
      for (const char* clock :
           {"seconds", "tokens_per_second", "train_tokens_per_second", "train_peak_bytes"})
        rows.back().erase(clock);
    }
    return rows;
  };
  const auto actual = rows_of(out), expected = rows_of(whole);
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_EQ(actual[i].dump(), expected[i].dump()) << i;
}

inline std::vector<Job> jobs() {
  const auto same_folder = [](const std::string& out, const std::string& whole) {
    EXPECT_EQ(snapshot(out), snapshot(whole));
  };
  const auto same_file = [](const std::string& out, const std::string& whole) {
    EXPECT_EQ(read_text(out), read_text(whole));
  };
  // What a user types when the result exists already.
  const auto replaced = [](const Job::Command& command) -> Job::Command {
    return [=](const std::string& out) {
      return command(out) + (fs::exists(out) ? Words{"--overwrite"} : Words{});
    };
  };
  return {{"train", train, [](const std::string& out) { return train(out) + Words{"--resume"}; },
           expect_same_run},
          {"instruct", instruct,
           [](const std::string& out) { return instruct(out) + Words{"--resume"}; },
           expect_same_run, "", 3},
          {"export", export_both, replaced(export_both), same_folder},
          {"gguf", export_gguf, replaced(export_gguf), same_file, ".gguf", 1},
          {"import", import_folder, replaced(import_folder), expect_same_store, ".h5"},
          {.name = "compare",
           .command = compare,
           .again = compare,
           .expect_same = expect_same_comparison,
           .few = 2,
           .many = 150},
          {"fit", fit, replaced(fit), expect_same_store, ".h5", 1},
          {"merge", merge, replaced(merge), expect_same_store, ".h5", 1},
          {"groups", groups, replaced(groups), same_folder, "", 1},
          {"tokenizer", tokenizer, replaced(tokenizer), same_folder, "", 1},
          {"report", report, report, same_file, ".html", 1},
          {"corpus", corpus, replaced(corpus), same_file, ".txt", 1}};
}

/// A test of a job that something befalls.
class Disturbed : public testing::TestWithParam<Job> {
 protected:
  static const std::string& whole() {
    static std::map<std::string, std::string> made;
    std::string& out = made[GetParam().name];
    if (out.empty()) {
      out = cli().fresh("whole" + GetParam().ending);
      cli().must_run(GetParam().command(out));
    }
    return out;
  }

  /// `out` must hold what an undisturbed command leaves.
  static void expect_whole(const std::string& out) { GetParam().expect_same(out, whole()); }

  /// What lies below a folder under its final name must be whole.
  static void expect_what_is_there_verifies(const std::string& out) {
    if (!fs::exists(out)) return;
    std::vector<fs::path> files;
    if (fs::is_directory(out)) {
      for (const auto& entry : fs::recursive_directory_iterator(out)) files.push_back(entry.path());
    } else {
      files.emplace_back(out);
    }
    for (const fs::path& file : files) {
      if (file.extension() != ".h5" || contains(file.string(), ".focus-tmp-")) continue;
      const ProcessResult info = cli().run({"info", file.string()});
      EXPECT_EQ(info.status, 0) << file << ": " << info.err;
    }
  }

  static void expect_nothing_left_over(const std::string& out) {
    for (const auto& [name, checksum] : snapshot(out))
      EXPECT_FALSE(contains(name, ".focus-tmp-")) << name;
    const fs::path target = out;
    for (const auto& entry : fs::directory_iterator(target.parent_path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with("." + target.filename().string() +
                                                                ".focus-tmp-"))
          << entry.path();
  }
};

}  // namespace focus
