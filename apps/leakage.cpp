#include "apps/command.h"
#include "autograd/base/check.h"

namespace focus::app {
int run_leak_test(Arguments arguments) {
  ModelOptions options;
  std::string json;
  Index context = 0;
  std::vector<std::string> words;
  constexpr std::int64_t kCuts = 4, kSeed = 1;
  CLI::App app(
      "Causality test: changes later tokens, keeps the length, and requires bit-identical logits "
      "before them, for dense, soft and hard k=1..K attention and the mechanism that the model was "
      "trained with, or for the attentions of --attention. The exit status is 1 if one leaks.",
      "focus leak-test");
  options.add_to(app, {"tokenizer", "bos"});
  app.add_option("--context", context,
                 "tokens in the sequence (default: 512, or the model's positions if fewer)");
  add_attention_option(app, words, "attention specs as in focus eval: soft,hard:2,window:128");
  app.add_option("--json", json, kJsonHelp);
  parse_arguments(app, arguments);

  LoadedModel model = options.load();
  const Index positions = model.decoder->config().max_position_embeddings;
  if (context == 0) context = std::min<Index>(512, positions);
  check(context >= 2 && context <= positions,
        "--context must be from 2 to the {} positions of {}, not {}", positions, options.base,
        context);
  bool leaks = false;
  auto results = nlohmann::ordered_json::array();
  for (const AttentionSpec& spec :
       resolve_words(words, model, DefaultBalance::trained, "--attention")) {
    const ActiveAttention active(model, spec);
    const auto leak = find_leak(*model.decoder, context, kCuts, kSeed);
    if (leak)
      fmt::print(
          "{:<32} LEAKS: tokens from {} on were changed, logits differ first at position {}\n",
          active.title(), leak->cut, leak->position);
    else
      fmt::print("{:<32} no leak: logits before {} changed positions are bit-identical\n",
                 active.title(), kCuts);
    leaks = leaks || leak.has_value();
    results.push_back({{"mode", active.title()},
                       {"leaks", leak.has_value()},
                       {"first_difference",
                        leak ? nlohmann::ordered_json(leak->position) : nlohmann::ordered_json()}});
  }
  write_json(json, {{"model", options.base},
                    {"adapter", options.adapter},
                    {"context", context},
                    {"precision", name_of(options.precision)},
                    {"leaks", leaks},
                    {"modes", results}});
  return leaks ? 1 : 0;
}

}  // namespace focus::app
