#include "apps/command.h"
#include "apps/server.h"
#include "autograd/base/check.h"
#include "data/files/input_file.h"
#include "focus/training/tasks.h"

namespace focus::app {
namespace {

/// The lines of a file that are not blank.
std::vector<std::string> read_keys(const std::string& file) {
  std::vector<std::string> keys;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) keys.push_back(line);
  }
  if (keys.empty()) fail("--api-key-file {}: no key in it; expected one in each line", file);
  return keys;
}

}  // namespace

int run_serve(Arguments arguments) {
  ModelOptions options;
  ServerOptions server;
  TextOptions text;
  std::string cache = "auto", key_file, cache_folder;
  std::uint64_t most_bytes = 10'000'000'000;
  CLI::App app(
      "Serves a model by OpenAI's API over HTTP: GET /v1/models, /health and /metrics, POST "
      "/v1/chat/completions and /v1/completions. It generates several answers at once, and a "
      "prompt that begins like an earlier one computes only what differs. Ctrl-C ends it.",
      "focus serve");
  options.add_to(app);
  add_attention_option(app, text.attention, "attention, with the default, as of focus generate");
  add_cache_option(app, cache);
  app.add_option("--speculate", text.speculate,
                 "guess next tokens while one text is generated, as of focus generate");
  CLI::Option* const saves = app.add_option(
      "--cache-dir", cache_folder,
      "folder to save the caches of prompts in, for prompts that begin alike, also of a later run");
  app.add_option("--cache-limit", most_bytes,
                 "bytes of that folder at most, such as 500MB; what was used least recently goes "
                 "(default: 10GB)")
      ->transform(CLI::AsSizeValue(true))
      ->check(kPositive)
      ->needs(saves);
  app.add_option("--host", server.host,
                 "address to listen on; 0.0.0.0: all of the machine, for anyone who reaches it")
      ->capture_default_str();
  app.add_option("--port", server.port, "port to listen on; 0: any that is free")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app.add_option("--parallel", server.limits.slots, "requests that are generated at once")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app.add_option("--api-key-file", key_file,
                 "file with keys, one in each line; clients must send one of them");
  parse_arguments(app, arguments);

  if (!key_file.empty()) server.keys = read_keys(key_file);
  server.name = std::filesystem::path(options.base).filename().string();
  LoadedModel model = options.load();
  model.require_tokenizer();
  const ActiveAttention active(model, attention_to_generate(text, model, "--attention"));
  text.cache_dtype = cache_dtype(cache, options.precision);
  server.attention = active.name();
  GenerationModel generation = generation_model(model, active, text);
  std::optional<CacheFiles> files;
  if (!cache_folder.empty())
    generation.files = &files.emplace(cache_folder, cache_identity(model, generation), most_bytes);
  serve(model, generation, server);
  return 0;
}

}  // namespace focus::app
