#pragma once

#include "tests/reliability/campaign.h"

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
  bool is_whole = false;                       // `out` appears all at once
};
inline void PrintTo(const Job& job, std::ostream* stream) { *stream << job.name; }

inline Words train(const std::string& out) {
  return cli().retrofit({"out=" + out, "steps=4", "eval_every=2", "checkpoint_every=2"});
}

/// A LoRA of a GGUF file on prompts with completions, packed.
inline Words instruct(const std::string& out) {
  static const std::string examples = [] {
    const std::string path = cli().fresh("examples.jsonl");
    std::string lines;
    for (int i = 0; i < 40; ++i)
      lines +=
          fmt::format("{{\"prompt\": \"{0} and {0} is \", \"completion\": \"{1}\"}}\n", i, 2 * i);
    write_text(path, lines);
    return path;
  }();
  return cli().config(
      words("method=lora base={} tokenizer=bytes data.train={} data.packing=documents steps=4 "
            "checkpoint_every=2 eval_every=2 out={}",
            made_once("base.gguf", "export {base}", "--gguf"), examples, out));
}

inline Words compare(const std::string& out) {
  static const std::string config = compare_config(R"(seeds: [1]
common:
  steps: 2
  data: {data}
  focus: {num_groups: 3, local_window: 8, tokens: {routing_dim: 8}}
  eval_windows: 1
runs:
  - {name: retrofit, base: {base}}
  - {name: lora, base: {base}, method: lora}
eval: {valid: [{valid}], context: 64, stride: 32, max_tokens: 128, attentions: [dense, trained]}
)");
  return {"compare", config, "out=" + out};
}

inline Words report(const std::string& out) {
  return {"report", "--run", fs::path(cli().adapter()).parent_path().string(), "--out", out};
}

inline Words prompt_cache(const std::string& out) {
  return words("generate {base} --max-new-tokens 2 --prompt {} --prompt-cache {}",
               "Once upon a time there was a small town", out);
}

inline std::vector<Job> jobs() {
  const auto same_folder = [](const std::string& out, const std::string& whole) {
    EXPECT_EQ(snapshot(out), snapshot(whole));
  };
  const auto same_file = [](const std::string& out, const std::string& whole) {
    EXPECT_EQ(read_text(out), read_text(whole));
  };
  const auto same_comparison = [](const std::string& out, const std::string& whole) {
    EXPECT_EQ(rows_without_rates(out), rows_without_rates(whole));
  };
  // One output that is there as a whole or not at all; --overwrite is what a user types then.
  const auto whole = [](const std::string& name, const Job::Command& command, auto expect_same,
                        const std::string& ending = "", int few = 1) {
    return Job{.name = name,
               .command = command,
               .again =
                   [=](const std::string& out) {
                     const bool there = fs::exists(out) && name != "report";
                     return command(out) + (there ? Words("--overwrite") : Words());
                   },
               .expect_same = expect_same,
               .ending = ending,
               .few = few,
               .is_whole = true};
  };
  const auto made = [](const std::string& line) -> Job::Command {
    return [=](const std::string& out) { return words(line, out); };
  };
  // A folder in which each file appears by itself.
  const auto in_parts = [&](const std::string& name, const std::string& line) {
    Job job = whole(name, made(line), same_folder);
    job.is_whole = false;
    return job;
  };
  const auto resumed = [](const Job::Command& command) -> Job::Command {
    return [=](const std::string& out) { return command(out) + "--resume"; };
  };
  return {
      {.name = "train", .command = train, .again = resumed(train), .expect_same = expect_same_run},
      {.name = "instruct",
       .command = instruct,
       .again = resumed(instruct),
       .expect_same = expect_same_run,
       .few = 3},
      {.name = "compare",
       .command = compare,
       .again = compare,
       .expect_same = same_comparison,
       .few = 2,
       .many = 150},
      whole("export", made("export {base} --adapter {adapter} --out {}"), same_folder, "", 6),
      whole("gguf", made("export {base} --gguf {}"), same_file, ".gguf"),
      whole("import", made("import " + made_once("folder", "export {base}") + " --out {}"),
            expect_same_store, ".h5", 6),
      whole("fit",
            made("fit {base} --text {train} --num-groups 4 --local-window 8 --block 8 --out {} "
                 "--tokens 512"),
            expect_same_store, ".h5"),
      {.name = "prompt_cache",
       .command = prompt_cache,
       .again = prompt_cache,
       .expect_same = same_file,
       .ending = ".focuskv",
       .few = 3,
       .is_whole = true},
      whole("merge", made("merge {base} --adapter {lora} --out {}"), expect_same_store, ".h5"),
      in_parts("groups",
               "groups {base} --adapter {adapter} --text {valid} --max-tokens 256 --out {}"),
      in_parts("tokenizer", "tokenizer train --text {train} --out {} --vocab-size 300"),
      whole("report", report, same_file, ".html"),
      whole("corpus", made("corpus --kind recall --documents 50 --out {}"), same_file, ".txt")};
}

/// No file below a folder has the name of one that is being written.
inline void expect_no_half_files(const std::string& folder) {
  for (const auto& [name, checksum] : snapshot(folder))
    EXPECT_FALSE(contains(name, ".focus-tmp-")) << name;
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
  /// That and nothing else.
  static void expect_only_whole(const std::string& out) {
    expect_whole(out);
    expect_no_half_files(out);
    const fs::path target = out;
    for (const auto& entry : fs::directory_iterator(target.parent_path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with("." + target.filename().string() +
                                                                ".focus-tmp-"))
          << entry.path();
  }

  /// What lies below a folder under its final name must be whole.
  static void expect_what_is_there_verifies(const std::string& out) {
    if (!fs::exists(out)) return;
    if (GetParam().is_whole) return expect_whole(out);
    for (const auto& entry : fs::recursive_directory_iterator(out)) {
      const std::string file = entry.path();
      if (!file.ends_with(".h5") || contains(file, ".focus-tmp-")) continue;
      const ProcessResult info = cli().run({"info", file});
      EXPECT_EQ(info.status, 0) << file << ": " << info.err;
    }
  }
};

}  // namespace focus
