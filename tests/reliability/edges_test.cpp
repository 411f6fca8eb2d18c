#include <optional>

#include "focus/training/compare/compare_plan.h"
#include "layers/model_config.h"
#include "tests/reliability/campaign.h"

// Values at the edge of what a number is, and of other types than the key's, in every key that
// there is: taken from the settings' own list, and from the config.json files of the golden models.
// Each is read, or refused in one line that names the key; what is read ends soon in a run.
namespace focus {
namespace {

using Json = nlohmann::json;

const std::vector<std::string>& edge_values() {
  static const std::vector<std::string> values = [] {
    Words all =
        "0 -1 1 2147483647 2147483648 -2147483649 4294967296 9223372036854775807 "
        "9223372036854775808 18446744073709551616 1e18 1e308 -1e308 1e400 1e-320 -0.0 0.5 "
        "1.0000000001 nan .nan inf -inf .inf 0x10 1_000 true null ~ '' text [] [[]] [nan] .. "
        "/dev/zero [/dev/zero] '\\0' \xff";
    all.insert(all.end(), {"", "[1, 2]", "{a: 1}"});
    all.emplace_back(100'000, 'x');
    all.emplace_back(100'000, '9');
    all.push_back("[" + std::string(5000, '['));
    return all;
  }();
  return values;
}

/// What refused a value, or nothing where none did. An exception of another type ends the test.
template <class F>
std::optional<std::string> refusal_of(F&& f) {
  try {
    f();
    return std::nullopt;
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(typeid(error), typeid(std::runtime_error)) << error.what();
    return error.what();
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(typeid(error), typeid(std::invalid_argument)) << error.what();
    return error.what();
  }
}

void expect_names(const std::string& message, const std::string& key) {
  EXPECT_EQ(lines_of(message).size(), 1u) << message;
  EXPECT_LT(message.size(), 2000u);
  EXPECT_TRUE(contains(message, key.substr(key.rfind('.') + 1))) << message.substr(0, 500);
}

std::string as_yaml(const std::string& key, const std::string& value) {
  std::string text;
  int depth = 0;
  for (std::size_t begin = 0; begin != std::string::npos; ++depth) {
    const std::size_t dot = key.find('.', begin);
    text += fmt::format("{:{}}{}:", "", 2 * depth, key.substr(begin, dot - begin));
    text += dot == std::string::npos ? " " + value + "\n" : "\n";
    begin = dot == std::string::npos ? dot : dot + 1;
  }
  return text;
}

struct Setting {
  std::string key, value;
};

/// Every key of a config with every value, by an override and by a file: refused with the key's
/// name, or read, and read again from what is written of it. Those that are read go to `read`.
template <class Config>
int set_all(const Config& defaults,
            const std::function<void(const Setting&, const Config&)>& read) {
  Config listed = defaults;
  int tried = 0;
  for (const ConfigField& field : config_fields(listed)) {
    for (const std::string& value : edge_values())
      for (const bool by_file : {false, true}) {
        SCOPED_TRACE(fmt::format("{}={} by {}", field.key, value.substr(0, 40),
                                 by_file ? "file" : "override"));
        Config config = defaults;
        const auto refused = refusal_of([&] {
          if (by_file)
            read_config_text(as_yaml(field.key, value), "config.yaml", {}, config);
          else
            read_config_text("", "config.yaml", {field.key + "=" + value}, config);
        });
        ++tried;
        if (refused) {
          // Invalid or unsupported YAML is reported with its line.
          const bool unread = contains(*refused, "YAML") || contains(*refused, "UTF-8") ||
                              contains(*refused, "levels");
          if (!by_file || !unread) expect_names(*refused, field.key);
          continue;
        }
        Config again = defaults;
        read_config_text(dump_config(config), "written", {}, again);
        EXPECT_EQ(dump_config(again), dump_config(config));
        if (!by_file) read({field.key, value}, config);
      }
  }
  return tried;
}

/// The run that a setting matters to.
Words run_with(const Setting& setting) {
  const std::string group = setting.key.substr(0, setting.key.find('.'));
  Words run = "base={base}";
  if (group == "model") run = "method=scratch tokenizer=bytes model.hidden_size=32";
  if (group == "lora") run = run + "method=lora";
  if (group == "two_phase") run = run + "method=two_phase two_phase.phase1_steps=4";
  // However many steps it is to have, it has one.
  return run + Words{"steps=1", setting.key + "=" + setting.value, "--stop-at", "1"};
}

TEST(Edges, OfEveryKeyOfAConfig) {
  RunConfig defaults;
  std::vector<Setting> accepted;
  const int tried =
      set_all<RunConfig>(defaults, [&](const Setting& setting, const RunConfig& config) {
        accepted.push_back(setting);
        for (const Method method :
             {Method::retrofit, Method::two_phase, Method::full, Method::scratch, Method::lora}) {
          RunConfig run = config;
          if (setting.key != "method") run.method = method;
          if (run.data.train.empty()) run.data.train = {"text"};
          if (run.method == Method::scratch) {
            if (run.tokenizer.empty()) run.tokenizer = "bytes";
          } else if (run.base.empty()) {
            run.base = "base";
          }
          const auto expect_one_line = [](const auto& f) {
            const std::string refused = refusal_of(f).value_or("nothing");
            EXPECT_EQ(lines_of(refused).size(), 1u) << refused;
          };
          expect_one_line([&] { run.validate(); });
          if (run.method == Method::scratch)
            expect_one_line([&] { run.model.to_model_config(256, run.data.context); });
        }
      });
  int worked = 0, refused = 0;
  for (const int i : some_of(static_cast<int>(accepted.size()), "edges of a config", 20)) {
    const Setting& setting = accepted[i - 1];
    // Where it writes, and how many threads there are, is not what is tried.
    if (setting.key == "out" || setting.key == "data.cache_dir" || setting.key == "threads")
      continue;
    const std::string out = cli().fresh("edge");
    const ProcessResult result =
        run_by(in_address_space(4'000'000), cli().config(run_with(setting) + Words{"out=" + out}));
    SCOPED_TRACE(fmt::format("{}={}: status {}: {}", setting.key, setting.value.substr(0, 40),
                             result.status, result.err.substr(0, 2000)));
    EXPECT_FALSE(result.timed_out);
    EXPECT_TRUE(result.status == 0 || result.status == 1);
    ++(result.status == 0 ? worked : refused);
    if (result.status == 0) continue;
    EXPECT_TRUE(lines_of(result.err).back().starts_with("focus train: "));
  }
  fmt::print("config: {} settings, {} of them read; of these {} runs worked, {} were refused\n",
             tried, accepted.size(), worked, refused);
  EXPECT_GT(worked, 0);
}

TEST(Edges, OfEveryKeyOfAComparison) {
  CompareConfig defaults;
  const int tried = set_all<CompareConfig>(defaults, [&](const Setting& setting, const auto&) {
    const std::string config =
        "eval: {valid: [text]}\ncommon: {data: {train: [text]}, base: b}\n"
        "runs: [{name: a}]\n";
    const auto refused = refusal_of(
        [&] { read_compare_plan(config, "compare.yaml", {setting.key + "=" + setting.value}); });
    if (!refused) return;
    for (const std::string& line : lines_of(*refused)) EXPECT_LT(line.size(), 2000u);
  });
  fmt::print("compare: {} settings\n", tried);
}

/// Every place of a JSON object, nested ones too.
void for_each_place(const Json& json, const Json::json_pointer& at,
                    const std::function<void(const Json::json_pointer&)>& f) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) for_each_place(value, at / key, f);
  } else if (json.is_array()) {
    for (std::size_t i = 0; i < json.size(); ++i) for_each_place(json[i], at / i, f);
  }
  if (!at.empty()) f(at);
}

std::vector<Json> edge_json() {
  using Int = std::numeric_limits<std::int64_t>;
  constexpr double kHuge = std::numeric_limits<double>::max();
  std::vector<Json> all = {Json::array(), Json::array({1, 2}), Json::object(),
                           Json::object({{"a", 1}})};
  for (const std::int64_t x :
       {0L, -1L, 1L, 2L, 7L, 2147483647L, 2147483648L, 4294967296L, Int::max(), Int::min()})
    all.emplace_back(x);
  for (const double x : {kHuge, -kHuge, 1e-320, -0.0, 0.5}) all.emplace_back(x);
  for (const std::string& x :
       {std::string(), std::string("text"), std::string("NaN"), std::string(100'000, 'x')})
    all.emplace_back(x);
  all.insert(all.end(), {std::numeric_limits<std::uint64_t>::max(), true, nullptr});
  return all;
}

TEST(Edges, OfEveryKeyOfAModelConfig) {
  int tried = 0;
  std::vector<std::pair<std::string, std::string>> accepted;  // golden model, config.json
  for (const auto& entry :
       fs::directory_iterator(std::string(FOCUS_SOURCE_DIR) + "/tests/golden/arch")) {
    if (!fs::exists(entry.path() / "config.json")) continue;
    const Json whole = Json::parse(read_text(entry.path() / "config.json"));
    for_each_place(whole, Json::json_pointer(), [&](const Json::json_pointer& place) {
      for (const Json& value : edge_json()) {
        Json changed = whole;
        changed[place] = value;
        SCOPED_TRACE(fmt::format("{} {}={}", entry.path().filename().string(), place.to_string(),
                                 value.dump().substr(0, 40)));
        ++tried;
        const std::string text = changed.dump();
        const auto refused = refusal_of([&] { parse_model_config(text, "config.json"); });
        if (!refused) {
          accepted.emplace_back(entry.path().string(), text);
          continue;
        }
        EXPECT_EQ(lines_of(*refused).size(), 1u) << *refused;
        EXPECT_LT(refused->size(), 2000u);
        EXPECT_TRUE(contains(*refused, "config.json")) << *refused;
      }
    });
  }
  int worked = 0, refused = 0;
  for (const int i : some_of(static_cast<int>(accepted.size()), "edges of a config", 15)) {
    const auto& [model, text] = accepted[i - 1];
    const std::string folder = cli().fresh("edge"), out = cli().fresh("edge.h5");
    fs::create_directory(folder);
    fs::create_symlink(model + "/model.safetensors", folder + "/model.safetensors");
    write_text(folder + "/config.json", text);
    for (const Words& command :
         {Words{"import", folder, "--out", out},
          Words{"logits", folder, "--ids", "1,2,3", "--out", cli().fresh("logits")}}) {
      const ProcessResult result = run_by(in_address_space(2'000'000), command, {}, 20);
      SCOPED_TRACE(fmt::format("focus {} of {}: status {}: {}", command[0], text.substr(0, 3000),
                               result.status, result.err.substr(0, 2000)));
      EXPECT_FALSE(result.timed_out);
      EXPECT_TRUE(result.status == 0 || result.status == 1);
      ++(result.status == 0 ? worked : refused);
      if (result.status == 0) continue;
      EXPECT_EQ(lines_of(result.err).size(), 1u);
      EXPECT_FALSE(contains(result.err, "out of memory"));
    }
    fs::remove_all(folder);
    fs::remove(out);
  }
  fmt::print("config.json: {} settings, {} of them read; of {} runs {} worked, {} were refused\n",
             tried, accepted.size(), worked + refused, worked, refused);
  EXPECT_GT(worked, 0);
}

}  // namespace
}  // namespace focus
