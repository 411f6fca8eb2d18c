// Opens any model (a Hugging Face folder, a GGUF file, a checkpoint file), answers a message or
// continues a text, and says what dense attention and groups of keys, fitted on a text in
// memory, make of the result:
//   generate MODEL "PROMPT" [ADAPTER ...]
#include <fmt/format.h>
#include <focus/all.h>

int main(int argc, char** argv) try {
  focus::check(argc >= 3, "wanted: generate MODEL PROMPT [ADAPTER ...]");
  focus::LoadedModel model = focus::open(argv[1], {.adapters = {argv + 3, argv + argc}});

  focus::TextOptions options = focus::TextOptions::of(model);  // its generation_config.json
  options.generation.max_new_tokens = 100;
  options.generation.sampling.temperature = 0.7;
  options.generation.sampling.top_p = 0.9;
  const auto print = [](const std::string& text) {
    fmt::print("{}", text);
    std::fflush(stdout);
    return true;  // false ends the generation
  };
  const bool chats = focus::has_chat_template(model.chat_files(), model.chat_where());
  const focus::GeneratedText made = chats ? focus::chat(model, {{"user", argv[2]}}, options, print)
                                          : focus::generate(model, argv[2], options, print);
  fmt::print("\n{} tokens, {:.0f} per second, {} ({})\n", made.ids.size(), made.decode_rate,
             made.attention.title(), made.stop);

  const focus::Texts text = {.documents = {argv[2] + made.text}};
  focus::FitSettings groups;
  groups.focus.num_groups = 4;  // a short text
  if (model.focus() == nullptr) focus::fit(model, text, groups);
  for (const std::string attention : {"dense", ""}) {
    const focus::Row row = focus::evaluate(model, attention, text);
    fmt::print("{:<28} perplexity {:.2f}, {:.0f}% of the pairs\n", row.attention.name,
               row.perplexity, 100 * row.pairs_attended);
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
