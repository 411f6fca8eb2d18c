#include <functional>
#include <regex>

#include "autograd/base/random.h"
#include "tests/support/cli.h"

// Damaged, forged and unsuitable files: refused in one line, or, where the damage touches nothing
// that is read, the very same figures.
namespace focus {
namespace {

TEST(CliBadFile, TruncatedStores) {
  const std::string whole = read_text(cli().base()), path = cli().fresh("cut.h5");
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{100},
                                   std::size_t{2048}, whole.size() / 2, whole.size() - 1}) {
    SCOPED_TRACE(fmt::format("{} of {} bytes", length, whole.size()));
    write_text(path, whole.substr(0, length));
    expect_refused({"info", path}, {path});
    expect_refused({"eval", path, "--text", cli().valid_text()}, {path});
    const std::string out = cli().fresh("run");
    expect_refused(cli().retrofit({"out=" + out, "base=" + path}), {path});
    EXPECT_FALSE(fs::exists(out));
  }
}

TEST(CliBadFile, FilesThatAreNoStores) {
  const std::string path = cli().fresh("not.h5");
  for (const std::string& bytes : {std::string("hello\n"), std::string(5000, '\0'),
                                   std::string("\x89HDF\r\n\x1a\n", 8) + std::string(3000, 'x')}) {
    write_text(path, bytes);
    expect_refused({"info", path}, {path});
    expect_refused({"eval", path, "--text", cli().valid_text()}, {path});
  }
}

/// What was printed without the column of tokens per second, which precedes that of pairs.
std::string without_speed(const std::string& printed) {
  static const std::regex speed(R"( +\d+ +(\d+\.\d ?%))");
  return std::regex_replace(printed, speed, " $1");
}

/// With one bit flipped, `command` on `path` must be refused or say what it said of the sound file.
/// True where it was refused.
bool expect_refused_or_same(const std::string& path, std::size_t bit, const Words& command,
                            const std::string& sound) {
  SCOPED_TRACE(fmt::format("bit {} flipped, focus {}", bit, command[0]));
  const ProcessResult result = cli().run(command);
  if (result.status == 0) {
    EXPECT_EQ(without_speed(result.out), without_speed(sound));
    return false;
  }
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_TRUE(contains(lines_of(result.err).back(), path)) << result.err;
  return true;
}

TEST(CliBadFile, FlippedBitsAreRefusedOrChangeNothing) {
  const std::string path = cli().fresh("flipped.h5");
  const Words info = {"info", path};
  fs::copy_file(cli().base(), path);
  const std::string sound_info = cli().must_run(info).out;
  const std::size_t bits = 8 * fs::file_size(path);
  Rng rng(11);
  int refused = 0;
  for (int i = 0; i < 40; ++i) {
    // Every second one near the start, where a file's structure lies.
    const std::size_t bit = rng.below(i % 2 == 0 ? bits : std::min<std::size_t>(bits, 32768));
    flip_bit(path, bit);
    refused += expect_refused_or_same(path, bit, info, sound_info);
    flip_bit(path, bit);
  }
  EXPECT_GE(refused, 20) << "most bits of a store are weights, and each of them must be noticed";
  EXPECT_EQ(cli().must_run(info).out, sound_info);
}

TEST(CliBadFile, AnAdapterWithAFlippedBit) {
  const std::string path = cli().fresh("flipped.h5");
  const Words eval = {"eval", cli().base(), "--adapter", path, "--text", cli().valid_text()};
  fs::copy_file(cli().adapter(), path);
  const std::string sound = cli().must_run(eval).out;
  const std::size_t bits = 8 * fs::file_size(path);
  Rng rng(12);
  for (int i = 0; i < 20; ++i) {
    const std::size_t bit = rng.below(bits);
    flip_bit(path, bit);
    expect_refused_or_same(path, bit, eval, sound);
    flip_bit(path, bit);
  }
}

std::string copy_of_model(const std::string& name) {
  const std::string folder = cli().fresh("folder");
  fs::create_directory(folder);
  for (const char* file : {"config.json", "model.safetensors"})
    fs::copy_file(golden_arch(name) + "/" + file, folder + "/" + file);
  return folder;
}

void expect_import_refused(const std::string& folder, const Words& parts) {
  const std::string out = cli().fresh("out.h5");
  expect_refused({"import", folder, "--out", out}, parts);
  EXPECT_FALSE(fs::exists(out));
}

/// Writes the model's weights with a header that `lie` has changed.
void expect_lie_refused(const std::function<void(nlohmann::ordered_json&)>& lie,
                        const Words& parts) {
  const std::string folder = copy_of_model("gpt2"), path = folder + "/model.safetensors";
  const std::string bytes = read_text(path);
  std::size_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  auto header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  header.erase("__metadata__");
  lie(header);
  const std::string text = header.dump();
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix += static_cast<char>(text.size() >> (8 * i) & 0xff);
  write_text(path, prefix + text + bytes.substr(8 + length));
  expect_import_refused(folder, Words{path} + parts);
}

TEST(CliBadFile, SafetensorsHeaderThatLies) {
  const std::string name = "transformer.ln_f.weight";
  // Unchanged but for its metadata it is good: the lies below are what is refused.
  const std::string folder = copy_of_model("gpt2");
  cli().must_run({"import", folder, "--out", cli().fresh("good.h5")});
  expect_lie_refused([&](auto& h) { h[name]["shape"] = {33}; }, {name});
  expect_lie_refused([&](auto& h) { h[name]["shape"] = {-32}; }, {name});
  expect_lie_refused([&](auto& h) { h[name]["shape"] = {std::int64_t{1} << 62, 32}; }, {name});
  expect_lie_refused([&](auto& h) { h[name]["dtype"] = "F64"; }, {name});
  expect_lie_refused([&](auto& h) { h[name]["dtype"] = "F7"; }, {name});
  expect_lie_refused([&](auto& h) { h[name]["data_offsets"][1] = 1'000'000'000; }, {name});
  expect_lie_refused([&](auto& h) { h[name]["data_offsets"] = {0, 128}; }, {});  // an overlap
  expect_lie_refused([&](auto& h) { h.erase(name); }, {});                       // a gap
}

TEST(CliBadFile, SafetensorsWhoseLengthIsWrong) {
  const std::string folder = copy_of_model("gpt2"), path = folder + "/model.safetensors";
  const std::string good = read_text(path);
  for (const std::string& bytes :
       {std::string(), std::string("\1\0\0", 3), std::string(8, '\xff') + good.substr(8),
        std::string("\0\0\0\0\0\0\0\0", 8) + good.substr(8), good.substr(0, good.size() - 1),
        good.substr(0, good.size() / 2), good + "x"}) {
    SCOPED_TRACE(fmt::format("{} bytes", bytes.size()));
    write_text(path, bytes);
    expect_import_refused(folder, {path});
  }
}

void expect_config_refused(const std::string& model,
                           const std::function<void(nlohmann::json&)>& change, const Words& parts) {
  const std::string folder = copy_of_model(model), path = folder + "/config.json";
  auto config = nlohmann::json::parse(read_text(path));
  change(config);
  write_text(path, config.dump());
  expect_import_refused(folder, Words{path} + parts);
  expect_refused(
      {"eval", folder, "--tokenizer", cli().ascii_tokenizer(), "--text", cli().valid_text()},
      Words{path} + parts);
}

TEST(CliBadFile, ConfigThatIsNoModel) {
  expect_config_refused("gpt2", [](auto& c) { c["n_head"] = 5; }, {"n_head 5", "n_embd 32"});
  expect_config_refused("gpt2", [](auto& c) { c["n_head"] = 0; }, {"n_head must be", "0"});
  expect_config_refused("gpt2", [](auto& c) { c["n_layer"] = -1; }, {"-1"});
  expect_config_refused("gpt2", [](auto& c) { c["n_embd"] = "wide"; }, {"n_embd"});
  expect_config_refused("gpt2", [](auto& c) { c["n_embd"] = std::int64_t{1} << 40; }, {});
  expect_config_refused("llama_gqa", [](auto& c) { c["num_key_value_heads"] = 3; }, {"3", "4"});
  expect_config_refused("llama_gqa",
                        [](auto& c) {
                          c.erase("head_dim");
                          c["num_attention_heads"] = 6;
                        },
                        {"6", "32"});
  expect_config_refused("llama_gqa", [](auto& c) { c["model_type"] = "mamba"; },
                        {"mamba", "gpt2", "llama"});
  expect_config_refused("llama_gqa", [](auto& c) { c.erase("model_type"); }, {"model_type"});
  expect_config_refused("llama_gqa", [](auto& c) { c["hidden_act"] = "mish"; }, {"mish"});
  expect_config_refused("llama_gqa",
                        [](auto& c) {
                          c.erase("rope_parameters");
                          c["rope_scaling"] = {{"rope_type", "spiral"}, {"factor", 2.0}};
                        },
                        {"spiral"});
}

TEST(CliBadFile, ConfigThatDoesNotFitTheWeights) {
  const auto expect = [](const std::string& model, const char* key, int value) {
    const std::string folder = copy_of_model(model);
    auto config = nlohmann::json::parse(read_text(folder + "/config.json"));
    config[key] = value;
    write_text(folder + "/config.json", config.dump());
    expect_import_refused(folder, {folder});
  };
  expect("gpt2", "n_layer", 4);
  expect("gpt2", "n_embd", 64);
  expect("gpt2", "vocab_size", 97);
  expect("llama_gqa", "intermediate_size", 57);
  expect("llama_gqa", "num_key_value_heads", 4);
}

TEST(CliBadFile, BrokenTokenizers) {
  const std::string good = read_text(cli().ascii_tokenizer()), path = cli().fresh("tokenizer.json");
  const std::string out = cli().fresh("out.h5");
  auto unknown = nlohmann::json::parse(good), hole = unknown;
  unknown["model"]["type"] = "Oracle";
  hole["model"]["merges"] = {"a \u00ff"};
  for (const std::string& text : {std::string("{"), std::string("[]"),
                                  good.substr(0, good.size() / 2), unknown.dump(), hole.dump()}) {
    SCOPED_TRACE(text.substr(0, 60));
    write_text(path, text);
    expect_refused({"import", golden_arch("gpt2"), "--out", out, "--tokenizer", path}, {path});
    EXPECT_FALSE(fs::exists(out));
  }
}

}  // namespace
}  // namespace focus
