#include <memory>
#include <optional>
#include <set>

#include "data/tensors/checkpoint_folder.h"
#include "tests/reliability/campaign.h"

// What a run does to its files is written down, and every state is rebuilt that a power cut may
// leave on the disk: bytes that were not synced are there, or not, or in part, and names that were
// made, changed or taken away since their folder was synced are there up to some point. In each of
// them the last checkpoint that was complete is found.
namespace focus {
namespace {

/// What a trace (tests/reliability/trace_library.cpp) says, applied up to some line.
class Disk {
 public:
  explicit Disk(std::string root) : root_(std::move(root)) { now_[root_] = make(true); }

  void apply(const std::string& line) {
    std::istringstream words(line);
    std::string what, from, to;
    long id = 0, number = 0;
    words >> what;
    if (what == "open") {
      words >> id >> from;
      if (!now_.contains(from)) link(from, make(false));
      open_[id] = now_.at(from);
    } else if (what == "cut") {
      words >> id >> number;
      open_.at(id)->waiting.push_back({.cut = number, .offset = 0, .bytes = {}});
    } else if (what == "write") {
      words >> id >> number >> from;
      open_.at(id)->waiting.push_back(
          {.cut = std::nullopt, .offset = number, .bytes = from_hex(from)});
    } else if (what == "sync") {
      words >> id;
      sync(*open_.at(id));
    } else if (what == "rename") {
      words >> from >> to;
      // One step on a disk that keeps a journal: both names change, or none.
      names_.push_back({from, to, now_.at(from)});
      now_[to] = now_.at(from);
      now_.erase(from);
    } else if (what == "unlink") {
      words >> from;
      names_.push_back({from, "", nullptr});
      now_.erase(from);
    } else if (what == "mkdir") {
      words >> from;
      link(from, make(true));
    } else {
      throw std::runtime_error("no such line in a trace: " + line);
    }
  }

  std::size_t names_waiting() const { return names_.size(); }

  /// Writes what is on the disk, with so many of the changed names and with the unsynced bytes that
  /// `survives` keeps (all of a change, or with half of it where it says so), below another root.
  enum class Fate { kept, lost, torn };
  void rebuild(const fs::path& where, std::size_t names,
               const std::function<Fate()>& survives) const {
    Names there = synced_;
    for (std::size_t i = 0; i < names; ++i) change(there, names_[i]);
    fs::remove_all(where);
    fs::create_directories(where);
    for (const auto& [path, node] : there) {  // folders come before what is in them
      const fs::path to = where / fs::relative(path, root_);
      if (!fs::exists(to.parent_path())) continue;  // its folder's name was lost
      if (node->folder)
        fs::create_directories(to);
      else
        write_text(to, contents(*node, survives));
    }
  }

 private:
  struct Change {
    std::optional<long> cut;
    long offset;
    std::string bytes;
  };
  struct Node {
    bool folder = false;
    std::string synced;
    std::vector<Change> waiting;
  };
  struct Name {
    std::string from, to;  // from "" to a new one; to "": taken away
    std::shared_ptr<Node> node;
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;

  static std::shared_ptr<Node> make(bool folder) {
    auto node = std::make_shared<Node>();
    node->folder = folder;
    return node;
  }
  void link(const std::string& path, std::shared_ptr<Node> node) {
    names_.push_back({"", path, node});
    now_[path] = std::move(node);
  }
  static void change(Names& names, const Name& name) {
    if (!name.from.empty()) names.erase(name.from);
    if (!name.to.empty()) names[name.to] = name.node;
  }
  static void apply(std::string& bytes, const Change& change) {
    if (change.cut) {
      bytes.resize(*change.cut, '\0');
      return;
    }
    const auto end = static_cast<std::size_t>(change.offset) + change.bytes.size();
    if (bytes.size() < end) bytes.resize(end, '\0');
    bytes.replace(static_cast<std::size_t>(change.offset), change.bytes.size(), change.bytes);
  }
  static std::string contents(const Node& node, const std::function<Fate()>& survives) {
    std::string bytes = node.synced;
    for (Change change : node.waiting) {
      const Fate fate = survives();
      if (fate == Fate::lost) continue;
      if (fate == Fate::torn) change.bytes.resize(change.bytes.size() / 2);
      apply(bytes, change);
    }
    return bytes;
  }
  void sync(Node& node) {
    for (const Change& change : node.waiting) apply(node.synced, change);
    node.waiting.clear();
    if (!node.folder) return;
    // A journal is in order: with the last change of a name in this folder all before it are there.
    std::string path;
    for (const auto& [name, there] : now_)
      if (there.get() == &node) path = name;
    std::size_t last = 0;
    for (std::size_t i = 0; i < names_.size(); ++i)
      for (const std::string& name : {names_[i].from, names_[i].to})
        if (fs::path(name).parent_path() == path) last = i + 1;
    for (std::size_t i = 0; i < last; ++i) change(synced_, names_[i]);
    names_.erase(names_.begin(), names_.begin() + static_cast<std::ptrdiff_t>(last));
  }
  static std::string from_hex(const std::string& digits) {
    std::string bytes;
    for (std::size_t i = 0; i < digits.size(); i += 2)
      bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
    return bytes;
  }

  const std::string root_;
  Names now_, synced_;
  std::vector<Name> names_;  // changed since they were synced
  std::map<long, std::shared_ptr<Node>> open_;
};

Words power_run(const std::string& out, const Words& more = {}) {
  return cli().retrofit(
      Words{"out=" + out, "steps=6", "eval_every=3", "checkpoint_every=2", "checkpoint_keep=2"} +
      more);
}

TEST(Power, TheLastCompleteCheckpointIsFoundInEveryState) {
  const std::string parent = cli().fresh("traced"), out = parent + "/run",
                    log = cli().fresh("trace");
  fs::create_directory(parent);
  must_run_by({}, power_run(out),
              {{"LD_PRELOAD", FOCUS_TRACE_LIBRARY},
               {"FOCUS_TRACE_UNDER", parent},
               {"FOCUS_TRACE_LOG", log}});
  const std::vector<std::string> trace = lines_of(read_text(log));

  Rng rng(3);
  const std::string crashed = cli().fresh("crashed"), run = crashed + "/run";
  int states = 0, uncertain = 0, resumed = 0, found = 0;
  const auto check_state = [&](int complete, bool resume) {
    ++states;
    std::optional<fs::path> latest;
    if (fs::exists(run + "/checkpoints")) {
      ASSERT_NO_THROW(latest = CheckpointFolder(run + "/checkpoints", 2).latest());
    }
    int step = 0;
    if (latest) {
      step = std::stoi(latest->stem().string().substr(5));
      StoreReader(*latest).verify();
      ++found;
    }
    EXPECT_GE(step, complete);
    if (!resume) return;
    ++resumed;
    // The same text is trained on from another place: the run's folder only.
    cli().must_run(power_run(run, {"--resume"}));
    expect_same_run(run, out);
  };
  const auto some = some_of(static_cast<int>(trace.size()), "power", 25);
  const std::set<int> chosen(some.begin(), some.end());
  Disk disk(parent);
  int complete = 0, pending = 0, named = 0;  // steps: durable, that `latest` names, the last named
  for (std::size_t line = 0; line < trace.size(); ++line) {
    disk.apply(trace[line]);
    if (trace[line].starts_with("rename ")) {
      if (trace[line].ends_with("/latest"))
        pending = named;
      else if (const auto at = trace[line].rfind("/step_"); at != std::string::npos)
        named = std::stoi(trace[line].substr(at + 6, 6));
    }
    if (trace[line].starts_with("sync ") && disk.names_waiting() == 0) complete = pending;
    if (!chosen.contains(static_cast<int>(line + 1))) continue;
    SCOPED_TRACE(
        fmt::format("power cut after line {} of the trace: {:.80}", line + 1, trace[line]));
    const std::size_t names = disk.names_waiting();
    std::set<std::size_t> upto = {0, names};
    if (names > 1) upto.insert(1 + rng.below(names - 1));
    for (const std::size_t count : upto)
      for (const int fate : {0, 1, 2, 3}) {  // all kept, all lost, and twice by chance
        disk.rebuild(crashed, count, [&] {
          if (fate < 2) return static_cast<Disk::Fate>(fate);
          return static_cast<Disk::Fate>(rng.below(3));
        });
        check_state(complete, fate == 2 && ++uncertain % (whole_campaign() ? 4 : 12) == 0);
        if (HasFailure()) return;
      }
  }
  EXPECT_EQ(complete, 6) << "the run is not durable at its end";
  EXPECT_GT(resumed, 0);
  fmt::print("{} lines, {} states, a checkpoint in {}, {} resumed\n", trace.size(), states, found,
             resumed);
}

}  // namespace
}  // namespace focus
