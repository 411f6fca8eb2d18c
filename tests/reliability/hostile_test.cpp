#include "tests/reliability/hostile.h"

#include "data/tensors/safetensors.h"
#include "tests/reliability/campaign.h"
#include "tests/reliability/limit.h"

// libhdf5 leaks a little where it refuses a file, in this process too.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5\n"; }

// What is no file, leads elsewhere or unpacks to too much, in the place of every file that a
// command reads: one line that names it and status 1, soon, and nothing written. And the links and
// pipes that are meant.
namespace focus {
namespace {

constexpr double kSoon = 20;  // far more than what takes long here, two seconds of a silent pipe

/// A file that commands read.
struct Place {
  std::string name;
  std::string file;                     // its name, where that counts
  std::function<std::string()> around;  // the folder it lies in; empty: it lies by itself
  std::function<Words(const std::string& path, const std::string& out)> command;
  bool is_text = false, is_config = false;
};

std::string lora() {
  static const std::string path = [] {
    const std::string out = cli().fresh("lora");
    cli().must_run(cli().config({"base=" + cli().base(), "method=lora", "out=" + out}));
    return out + "/lora.h5";
  }();
  return path;
}

/// What export makes: a base, a base in shards, a Focus.
std::string exported(const std::string& name, const Words& words) {
  static std::map<std::string, std::string> made;
  std::string& out = made[name];
  if (out.empty()) {
    out = cli().fresh(name);
    cli().must_run(Words{"export"} + words + Words{"--out", out});
  }
  return out;
}
std::string folder() { return exported("folder", {cli().base()}); }
std::string shards() { return exported("shards", {cli().base(), "--max-shard-size", "20000"}); }
std::string first_shard() {
  const auto index = nlohmann::json::parse(read_text(shards() + "/model.safetensors.index.json"));
  return index.at("weight_map").begin()->get<std::string>();
}
std::string focus_folder() { return exported("focus", {cli().adapter()}); }
std::string peft_folder() {
  static const std::string out = [] {
    const std::string run = fs::path(lora()).parent_path().string();
    std::string made = cli().fresh("peft");
    fs::create_directory(made);
    for (const char* file : {"/adapter_config.json", "/adapter_model.safetensors"})
      fs::copy_file(run + file, made + file);
    return made;
  }();
  return out;
}

/// A file of a folder that holds the others, too.
Place part_of(const std::string& name, std::function<std::string()> around, const std::string& file,
              const std::function<Words(const std::string& folder, const std::string& out)>& use) {
  return {name + " " + file, file, std::move(around),
          [use](const std::string& path, const std::string& out) {
            return use(fs::path(path).parent_path().string(), out);
          }};
}

Place alone(const std::string& name,
            std::function<Words(const std::string& path, const std::string& out)> command,
            const std::string& file = "thing", bool is_text = false) {
  return {name, file, {}, std::move(command), is_text};
}
Place text(const std::string& name,
           std::function<Words(const std::string& path, const std::string& out)> command) {
  return alone(name, std::move(command), "thing.txt", true);
}

Place config(const std::string& name,
             std::function<Words(const std::string& path, const std::string& out)> command) {
  Place place = alone(name, std::move(command));
  place.is_config = true;
  return place;
}

using S = const std::string&;

std::vector<Place> places_of_models() {
  const auto on = [](const Words& before, const Words& after) {
    return [before, after](S path, S) { return before + Words{path} + after; };
  };
  const Words words = {"--text", cli().valid_text()};
  return {
      alone("info", on({"info"}, {})),
      alone("eval", on({"eval"}, words)),
      alone("eval --adapter", on({"eval", cli().base(), "--adapter"}, words)),
      alone("eval --tokenizer", on({"eval", cli().base(), "--tokenizer"}, words), "tokenizer.json"),
      alone("eval --tokenizer of pieces", on({"eval", cli().base(), "--tokenizer"}, words),
            "tokenizer.model"),
      alone("train base",
            [](S path, S out) {
              return cli().config({"base=" + path, "out=" + out});
            }),
      alone(
          "train tokenizer",
          [](S path, S out) {
            return cli().scratch({"tokenizer=" + path, "out=" + out});
          },
          "tokenizer.json"),
      alone("import",
            [](S path, S out) {
              return Words{"import", path, "--out", out};
            }),
      alone(
          "import --tokenizer",
          [](S path, S out) {
            return Words{"import", folder(), "--tokenizer", path, "--out", out};
          },
          "tokenizer.json"),
      alone("export",
            [](S path, S out) {
              return Words{"export", path, "--out", out};
            }),
      alone("export --adapter",
            [](S path, S out) {
              return Words{"export", cli().base(), "--adapter", path, "--out", out};
            }),
      alone("fit",
            [words](S path, S out) {
              return Words{"fit", path, "--out", out} + words;
            }),
      alone("groups",
            [words](S path, S out) {
              return Words{"groups", path, "--out", out} + words;
            }),
      alone("groups --against",
            [words](S path, S out) {
              return Words{"groups", cli().base(), "--adapter", cli().adapter(),
                           "--out",  out,          "--against", path} +
                     words;
            }),
      alone("generate", on({"generate"}, {"--prompt", "a"})),
      alone("merge",
            [](S path, S out) { return Words{"merge", path, "--adapter", lora(), "--out", out}; }),
      alone("merge --adapter",
            [](S path, S out) {
              return Words{"merge", cli().base(), "--adapter", path, "--out", out};
            }),
      alone("tokenizer encode", on({"tokenizer", "encode"}, words), "tokenizer.json"),
      alone("logits",
            [](S path, S out) { return Words{"logits", path, "--text", "a", "--out", out}; }),
      alone("leak-test", on({"leak-test"}, {})),
  };
}

std::vector<Place> places_of_texts() {
  return {
      text("eval --text",
           [](S path, S) {
             return Words{"eval", cli().base(), "--text", path};
           }),
      alone("eval --recall",
            [](S path, S) {
              return Words{"eval", cli().base(), "--recall", path};
            }),
      text("train data.train",
           [](S path, S out) {
             return cli().retrofit({"data.train=" + path, "out=" + out});
           }),
      text("train data.valid",
           [](S path, S out) {
             return cli().retrofit({"data.valid=" + path, "out=" + out});
           }),
      config("train config",
             [](S path, S out) {
               return Words{"train", path, "out=" + out};
             }),
      config("compare",
             [](S path, S out) {
               return Words{"compare", path, "out=" + out};
             }),
      text("fit --text",
           [](S path, S out) { return Words{"fit", cli().base(), "--text", path, "--out", out}; }),
      text("groups --text",
           [](S path, S out) {
             return Words{"groups", cli().base(), "--adapter", cli().adapter(),
                          "--text", path,         "--out",     out};
           }),
      alone("score --requests",
            [](S path, S out) {
              return Words{"score", cli().base(), "--requests", path, "--out", out};
            }),
      text("generate --prompt-file",
           [](S path, S) {
             return Words{"generate", cli().base(), "--max-new-tokens", "1", "--prompt-file", path};
           }),
      text("tokenizer train --text",
           [](S path, S out) {
             return Words{"tokenizer",    "train", "--text", path,
                          "--vocab-size", "300",   "--out",  out};
           }),
      text("tokenizer encode --text",
           [](S path, S) {
             return Words{"tokenizer", "encode", "bytes", "--text", path};
           }),
      alone("tokenizer decode --ids",
            [](S path, S) {
              return Words{"tokenizer", "decode", "bytes", "--ids", path};
            }),
      alone("report --eval",
            [](S path, S out) {
              return Words{"report", "--eval", path, "--out", out};
            }),
      alone(
          "report --run",
          [](S path, S out) {
            return Words{"report", "--run", fs::path(path).parent_path().string(), "--out", out};
          },
          "metrics.jsonl"),
  };
}

std::vector<Place> places_in_folders() {
  const Words words = {"--text", cli().valid_text()};
  const auto import_it = [](S in, S out) { return Words{"import", in, "--out", out}; };
  const auto eval_it = [words](S in, S) { return Words{"eval", in} + words; };
  const auto attach = [words](S in, S) {
    return Words{"eval", cli().base(), "--adapter", in} + words;
  };
  std::vector<Place> places;
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"}) {
    places.push_back(part_of("import of", folder, file, import_it));
    places.push_back(part_of("eval of", folder, file, eval_it));
  }
  for (const std::string& file : {std::string("model.safetensors.index.json"), first_shard()})
    places.push_back(part_of("import of shards,", shards, file, import_it));
  for (const char* file : {"focus_config.json", "focus_model.safetensors"}) {
    places.push_back(part_of("eval of Focus,", focus_folder, file, attach));
    places.push_back(part_of("info of Focus,", focus_folder, file, [](S in, S) {
      return Words{"info", in};
    }));
  }
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    places.push_back(part_of("eval of PEFT,", peft_folder, file, attach));
  return places;
}

std::vector<Place> all_places() {
  std::vector<Place> places = places_of_models();
  for (const auto& more : {places_of_texts(), places_in_folders()})
    places.insert(places.end(), more.begin(), more.end());
  return places;
}

/// A path at which the thing lies, beside the files that belong to it.
std::string put(const Thing& thing, const Place& place) {
  const std::string around = cli().fresh("hostile");
  if (place.around)
    fs::copy(place.around(), around, fs::copy_options::recursive);
  else
    fs::create_directory(around);
  const fs::path path = fs::path(around) / place.file;
  fs::remove(path);
  thing.put(path);
  return path.string();
}

/// With no more address space than what the program needs, its texts and what a bomb may take.
ProcessResult run_bounded(const Words& command) {
  return cli().start_by(in_address_space(3'000'000), command, {})->wait(kSoon);
}

void expect_refused_soon(const Place& place, const Thing& thing) {
  const std::string path = put(thing, place), out = cli().fresh("out.h5");
  const Words command = place.command(path, out);
  const ProcessResult result = run_bounded(command);
  SCOPED_TRACE(
      fmt::format("{}: {}; status {}; {}", place.name, thing.name, result.status, result.err));
  ASSERT_FALSE(result.timed_out);
  if (result.status == 0) {
    EXPECT_TRUE(place.is_text && thing.may_be_text);
  } else {
    EXPECT_EQ(result.status, 1);
    std::vector<std::string> lines = lines_of(result.err);
    std::erase_if(lines, [](const std::string& line) { return line.starts_with("notice: "); });
    // Each wrong line of a config is reported.
    ASSERT_TRUE(lines.size() == 1 || (place.is_config && lines.size() > 1));
    EXPECT_TRUE(lines[0].starts_with("focus " + command[0])) << lines[0];
    EXPECT_TRUE(contains(lines[0], fs::path(path).parent_path().string()) ||
                (place.is_text && thing.may_be_text))
        << lines[0];
    EXPECT_FALSE(contains(lines[0], "out of memory") || contains(lines[0], "bad_alloc"))
        << lines[0];
    EXPECT_FALSE(contains(lines[0], "json.exception")) << lines[0];
    EXPECT_FALSE(fs::exists(out));
  }
  fs::remove_all(fs::path(path).parent_path());
  fs::remove_all(out);
}

TEST(Hostile, ThingsInThePlaceOfFiles) {
  const std::vector<Thing> things = hostile_things();
  int tried = 0;
  for (const Place& place : all_places())
    for (const int i : campaign().some_of(static_cast<int>(things.size()), place.name, 1)) {
      const Thing& thing = things[static_cast<std::size_t>(i - 1)];
      // Two seconds each: in the short form below alone.
      if (thing.name == "a pipe" && !campaign().whole()) continue;
      expect_refused_soon(place, thing);
      ++tried;
      if (testing::Test::HasFatalFailure()) return;
    }
  for (const auto& entry :
       fs::recursive_directory_iterator(fs::path(cli().fresh("x")).parent_path()))
    EXPECT_FALSE(contains(entry.path().string(), ".focus-tmp-")) << entry.path();
  fmt::print("{} things in the place of files\n", tried);
}

TEST(Hostile, APipeIntoWhichNobodyWrites) {
  const std::string pipe = cli().fresh("pipe");
  mkfifo(pipe.c_str(), 0600);
  expect_refused({"score", cli().base(), "--requests", pipe, "--out", cli().fresh("answers.jsonl")},
                 {pipe, "no process writes"});
  expect_refused({"eval", pipe, "--text", cli().valid_text()}, {pipe, "a pipe, not a file"});
}

TEST(Hostile, LinksAsTheCachesOfHuggingFaceHaveThem) {
  const fs::path cache = cli().fresh("models--a--b"), snapshot = cache / "snapshots" / "1234";
  fs::create_directories(cache / "blobs");
  fs::create_directories(snapshot);
  int blob = 0;
  for (const auto& entry : fs::directory_iterator(shards())) {
    const std::string name = fmt::format("{:040x}", ++blob);
    fs::copy_file(entry.path(), cache / "blobs" / name);
    fs::create_symlink(fs::path("../../blobs") / name, snapshot / entry.path().filename());
  }
  const std::string linked = cli().fresh("linked");
  fs::create_symlink(snapshot, linked);
  const std::string plain = cli().fresh("plain.h5");
  cli().must_run({"import", shards(), "--out", plain});
  for (const std::string& folder : {snapshot.string(), linked}) {
    const std::string out = cli().fresh("out.h5");
    cli().must_run({"import", folder, "--out", out});
    expect_same_store(out, plain);
  }
  const std::string text = cli().fresh("text.txt");
  fs::create_symlink(cli().valid_text(), text);
  cli().must_run({"eval", linked, "--tokenizer", "bytes", "--text", text});
}

TEST(Hostile, AnIndexThatNamesFilesElsewhere) {
  const std::string elsewhere = cli().fresh("elsewhere"), inside = cli().fresh("inside");
  fs::create_directory(elsewhere);
  fs::copy(shards(), inside, fs::copy_options::recursive);
  const std::string index = inside + "/model.safetensors.index.json";
  const auto good = nlohmann::json::parse(read_text(index));
  const std::string first = first_shard();
  fs::copy_file(inside + "/" + first, elsewhere + "/" + first);
  for (const std::string& name :
       {"../" + fs::path(elsewhere).filename().string() + "/" + first, elsewhere + "/" + first,
        "./" + first, std::string("..\\") + first, std::string(".."), std::string("."),
        std::string(), std::string("/dev/zero"), std::string("sub/") + first,
        std::string(5000, 'x'), first + std::string(1, '\0')}) {
    SCOPED_TRACE(name);
    auto bad = good;
    for (auto& file : bad.at("weight_map"))
      if (file == first) file = name;
    write_text(index, bad.dump());
    const std::string out = cli().fresh("out.h5");
    expect_refused({"import", inside, "--out", out}, {index});
    EXPECT_FALSE(fs::exists(out));
  }
}

TEST(Hostile, ADeepRecordAmongTheMetrics) {
  const std::string out = cli().fresh("deep"), deep(200'000, '[');
  const Words command =
      cli().retrofit({"out=" + out, "steps=4", "eval_every=2", "checkpoint_every=2"});
  cli().must_run(command + Words{"--stop-at", "2"});
  std::string metrics = read_text(out + "/metrics.jsonl");
  metrics.append(R"({"step": 1, "a": )").append(deep).append(deep.size(), ']').append("}\n");
  write_text(out + "/metrics.jsonl", metrics);
  cli().must_run(command + Words{"--resume"});
  cli().must_run({"report", "--run", out, "--out", out + "/page.html"});
}

TEST(Hostile, PipesIntoWhichSomebodyWritesAreRead) {
  const std::string pipe = cli().fresh("pipe"), out = cli().fresh("answers.jsonl");
  mkfifo(pipe.c_str(), 0600);
  // The writer comes late, and pauses.
  const ProcessResult result =
      cli()
          .start_by(
              {"/bin/sh", "-c",
               R"((sleep 0.2; echo '{"type": "loglikelihood", "context": "a", "continuation": "b"}'; sleep 0.2;)"
               R"( echo '{"type": "loglikelihood", "context": "a", "continuation": "c"}') > )" +
                   pipe + R"( & exec "$@")",
               "sh"},
              {"score", cli().base(), "--requests", pipe, "--out", out}, {})
          ->wait(kRunSeconds);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(lines_of(read_text(out)).size(), 2u);
}

}  // namespace
}  // namespace focus
