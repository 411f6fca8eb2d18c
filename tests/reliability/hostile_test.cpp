#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>

#include "tests/reliability/campaign.h"
#include "tests/support/pack.h"

// libhdf5 leaks a little where it refuses a file, in this process too.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libhdf5\n"; }

// What is no file, leads elsewhere or unpacks to too much, in the place of every file that a
// command reads: one line that names it and status 1, soon, and nothing written. And the links and
// pipes that are meant.
namespace focus {
namespace {

// What a file name may lead to that no command accepts.

std::string noise(std::size_t bytes) {
  Rng rng(23);
  std::string text;
  while (text.size() < bytes) text += static_cast<char>(rng.below(256));
  return text;
}

struct Thing {
  std::string name;
  std::function<void(const fs::path& path)> put;
  bool may_be_text = false;
};

void put_socket(const fs::path& path) {
  // An address is shorter than many a path: it is bound in its folder.
  const fs::path before = fs::current_path();
  fs::current_path(path.parent_path());
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = ""};
  std::strncpy(address.sun_path, path.filename().c_str(), sizeof(address.sun_path) - 1);
  const int made = socket(AF_UNIX, SOCK_STREAM, 0);
  const bool bound = bind(made, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(made);
  fs::current_path(before);
  if (!bound) throw std::runtime_error("no socket");
}

std::vector<Thing> hostile_things() {
  const auto link = [](const std::string& to) {
    return [to](const fs::path& path) { fs::create_symlink(to, path); };
  };
  const auto bytes = [](const std::string& all) {
    return [all](const fs::path& path) { write_text(path, all); };
  };
  const std::string xz = packed(noise(5000), ARCHIVE_FILTER_XZ),
                    bz2 = packed(noise(5000), ARCHIVE_FILTER_BZIP2);
  // 320 MB of blanks in 50 kB, as streams one after the other: 5 GB would be as easy.
  const std::string stream = packed(std::string(std::size_t{16} << 20, ' '), ARCHIVE_FILTER_XZ);
  std::string xz_bomb;
  for (int i = 0; i < 20; ++i) xz_bomb += stream;
  return {
      {"a link that leads nowhere", link("nowhere")},
      {"links in a circle",
       [](const fs::path& path) {
         fs::create_symlink(path.filename().string() + ".back", path);
         fs::create_symlink(path.filename(), path.string() + ".back");
       }},
      {"a pipe", [](const fs::path& path) { mkfifo(path.c_str(), 0600); }},
      {"/dev/zero", link("/dev/zero")},
      {"/dev/null", link("/dev/null")},
      {"/dev/full", link("/dev/full")},
      {"a folder", [](const fs::path& path) { fs::create_directory(path); }},
      {"a socket", put_socket},
      {"nothing", bytes("")},
      {"noise", bytes(noise(5000)), true},
      {"a cut xz", bytes(xz.substr(0, 3000))},
      {"noise behind the magic of xz", bytes(xz.substr(0, 6) + noise(5000))},
      {"an xz bomb", bytes(xz_bomb)},
      {"a cut bz2", bytes(bz2.substr(0, 3000))},
      {"noise behind the magic of bz2", bytes("BZh91AY&SY" + noise(5000))},
      {"a bz2 bomb", bytes(packed(std::string(std::size_t{300} << 20, ' '), ARCHIVE_FILTER_BZIP2))},
      {"two terabytes of nothing",
       [](const fs::path& path) {
         write_text(path, "");
         fs::resize_file(path, std::uintmax_t{2} << 40);
       }},
  };
}

constexpr double kSoon = 20;  // far more than what takes long here, two seconds of a silent pipe

/// A file that commands read.
struct Place {
  std::string command;         // a line of words(); the first {} is the path, the second the output
  std::string file = "thing";  // its name, where that counts
  std::string (*around)() = {};  // the folder it lies in and is named by; null: it lies by itself
  bool is_text() const { return file == "thing.txt"; }
  bool is_config() const {
    return command.starts_with("train {}") || command.starts_with("compare");
  }
};

// What export makes: a base, a base in shards, a Focus.
std::string base_folder() { return made_once("folder", "export {base}"); }
std::string shards() { return made_once("shards", "export {base} --max-shard-size 20000"); }
std::string first_shard() {
  return read_json(shards() + "/model.safetensors.index.json").at("weight_map").front();
}
std::string focus_folder() { return made_once("focus", "export {adapter}"); }
std::string peft_folder() {
  static const std::string out = [] {
    const fs::path run = fs::path(cli().lora()).parent_path();
    std::string made = cli().fresh("peft");
    fs::create_directory(made);
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
      fs::copy_file(run / file, fs::path(made) / file);
    return made;
  }();
  return out;
}

std::vector<Place> all_places() {
  const std::string on_base = "train data.valid={valid} data.context=64 steps=2 eval_windows=2 ";
  std::vector<Place> places = {
      {"info {}"},
      {"eval {} --text {valid}"},
      {"eval {base} --adapter {} --text {valid}"},
      {"eval {base} --tokenizer {} --text {valid}", "tokenizer.json"},
      {"eval {base} --tokenizer {} --text {valid}", "tokenizer.model"},
      {on_base + "data.train={train} base={} out={}"},
      {on_base + "data.train={train} method=scratch tokenizer={} out={}", "tokenizer.json"},
      {"import {} --out {}"},
      {"import " + base_folder() + " --tokenizer {} --out {}", "tokenizer.json"},
      {"export {} --out {}"},
      {"export {base} --adapter {} --out {}"},
      {"fit {} --out {} --text {valid}"},
      {"groups {} --out {} --text {valid}"},
      {"generate {} --prompt a"},
      {"merge {} --adapter {lora} --out {}"},
      {"merge {base} --adapter {} --out {}"},
      {"tokenizer encode {} --text {valid}", "tokenizer.json"},
      {"logits {} --text a --out {}"},
      {"leak-test {}"},
      {"eval {base} --text {}", "thing.txt"},
      {"eval {base} --recall {}"},
      {on_base + "base={base} data.train={} out={}", "thing.txt"},
      {"train data.train={train} data.context=64 steps=2 base={base} data.valid={} out={}",
       "thing.txt"},
      {"train {} out={}"},
      {"compare {} out={}"},
      {"fit {base} --text {} --out {}", "thing.txt"},
      {"groups {base} --adapter {adapter} --text {} --out {}", "thing.txt"},
      {"score {base} --requests {} --out {}"},
      {"generate {base} --max-new-tokens 1 --prompt-file {}", "thing.txt"},
      {"tokenizer train --text {} --vocab-size 300 --out {}", "thing.txt"},
      {"tokenizer encode bytes --text {}", "thing.txt"},
      {"tokenizer decode bytes --ids {}"},
      {"report --eval {} --out {}"},
  };
  const std::string import_it = "import {} --out {}", eval_it = "eval {} --text {valid}",
                    attach = "eval {base} --adapter {} --text {valid}";
  for (const std::string file : {"config.json", "model.safetensors", "tokenizer.json"})
    for (const std::string& command : {import_it, eval_it})
      places.push_back({command, file, base_folder});
  for (const std::string& file : {std::string("model.safetensors.index.json"), first_shard()})
    places.push_back({import_it, file, shards});
  for (const std::string file : {"focus_config.json", "focus_model.safetensors"})
    for (const std::string& command : {attach, std::string("info {}")})
      places.push_back({command, file, focus_folder});
  for (const std::string file : {"adapter_config.json", "adapter_model.safetensors"})
    places.push_back({attach, file, peft_folder});
  // A run's folder, of which the report reads this file.
  places.push_back({"report --run {} --out {}", "metrics.jsonl", [] {
                      const std::string run = cli().fresh("run");
                      fs::create_directory(run);
                      return run;
                    }});
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

void expect_refused_soon(const Place& place, const Thing& thing) {
  const std::string path = put(thing, place), out = cli().fresh("out.h5");
  const Words command =
      words(place.command, place.around ? fs::path(path).parent_path().string() : path, out);
  // With no more address space than what the program needs, its texts and what a bomb may take.
  const ProcessResult result = run_by(in_address_space(3'000'000), command, {}, kSoon);
  SCOPED_TRACE(fmt::format("{}, {}: {}; status {}; {}", place.command, place.file, thing.name,
                           result.status, result.err));
  ASSERT_FALSE(result.timed_out);
  if (result.status == 0) {
    EXPECT_TRUE(place.is_text() && thing.may_be_text);
  } else {
    EXPECT_EQ(result.status, 1);
    std::vector<std::string> lines = lines_of(result.err);
    std::erase_if(lines, [](const std::string& line) { return line.starts_with("notice: "); });
    // Each wrong line of a config is reported.
    ASSERT_TRUE(lines.size() == 1 || (place.is_config() && lines.size() > 1));
    EXPECT_TRUE(lines[0].starts_with("focus " + command[0])) << lines[0];
    EXPECT_TRUE(contains(lines[0], fs::path(path).parent_path().string()) ||
                (place.is_text() && thing.may_be_text))
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
    for (const int i : some_of(static_cast<int>(things.size()), place.command + place.file, 1)) {
      const Thing& thing = things[i - 1];
      // Two seconds each: in the short form below alone.
      if (thing.name == "a pipe" && !whole_campaign()) continue;
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
  expect_refused(words("score {base} --requests {} --out {}", pipe, cli().fresh("answers.jsonl")),
                 {pipe, "no process writes"});
  expect_refused(words("eval {} --text {valid}", pipe), {pipe, "a pipe, not a file"});
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
  cli().must_run(words("eval {} --tokenizer bytes --text {}", linked, text));
}

TEST(Hostile, AnIndexThatNamesFilesElsewhere) {
  const std::string elsewhere = cli().fresh("elsewhere"), inside = cli().fresh("inside");
  fs::create_directory(elsewhere);
  fs::copy(shards(), inside, fs::copy_options::recursive);
  const std::string index = inside + "/model.safetensors.index.json", first = first_shard();
  const auto good = read_json(index);
  fs::copy_file(inside + "/" + first, elsewhere + "/" + first);
  // Other bad names are tried in data/tensors.
  for (const std::string& name : {"../" + fs::path(elsewhere).filename().string() + "/" + first,
                                  elsewhere + "/" + first, std::string("/dev/zero")}) {
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
  must_run_by(
      {"/bin/sh", "-c",
       R"((sleep 0.2; echo '{"type": "loglikelihood", "context": "a", "continuation": "b"}'; sleep 0.2;)"
       R"( echo '{"type": "loglikelihood", "context": "a", "continuation": "c"}') > )" +
           pipe + R"( & exec "$@")",
       "sh"},
      words("score {base} --requests {} --out {}", pipe, out));
  EXPECT_EQ(lines_of(read_text(out)).size(), 2u);
}

}  // namespace
}  // namespace focus
