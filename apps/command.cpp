#include "apps/command.h"

#include <omp.h>

#include <algorithm>

#include "autograd/check.h"
#include "data/files/durable_file.h"
#include "data/settings/recipe.h"
#include "data/text/text.h"

namespace focus {

void parse_arguments(CLI::App& app, Arguments arguments) {
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 wants them
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    throw CommandDone{app.exit(error) == 0 ? 0 : 2};
  }
}

void replaced_option(CLI::App& app, const std::string& old, const std::string& sentence) {
  const auto refuse = [&app, sentence](const CLI::results_t&) -> bool {
    fmt::print(stderr, "{}: {}\n", app.get_name(), sentence);
    throw CommandDone{2};
  };
  // With a value or without; at once, before anything else that is wrong is told.
  app.add_option(old, refuse)->expected(0, 1)->trigger_on_parse()->group("");
}

void renamed_option(CLI::App& app, const std::string& old, const std::string& now) {
  replaced_option(app, old, fmt::format("{} is called {} now", old, now));
}

void add_settings(CLI::App& app, const std::vector<RecipeField>& settings) {
  for (const RecipeField& field : settings) {
    std::string name = "--" + field.key;
    std::ranges::replace(name, '_', '-');
    const auto read = [field, name](const std::string& text) {
      try {
        RecipeNode word;
        word.kind = RecipeNode::Kind::kScalar;
        word.text = text;
        word.from_override = true;
        field.read(word);
      } catch (const std::invalid_argument& error) {
        fail("{}: {}", name, error.what());
      }
    };
    if (field.text() == "false") {
      app.add_flag_callback(
          name, [read] { read("true"); }, field.help);
    } else {
      app.add_option_function<std::string>(
          name, read, fmt::format("{} (default {})", field.help, field.text()));
    }
  }
}

nlohmann::ordered_json settings_json(const std::vector<RecipeField>& settings) {
  nlohmann::ordered_json json;
  for (const RecipeField& field : settings) {
    const std::string text = field.text();
    json[field.key] = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (json[field.key].is_discarded()) json[field.key] = text;  // a plain word
  }
  return json;
}

void add_recipe_arguments(CLI::App& app, std::string& recipe) {
  app.add_option("recipe", recipe, "a YAML recipe; may be left out where overrides say everything");
  app.allow_extras();
  app.footer("Any key of the recipe can be given as key=value:\n\n" + describe_recipe(RunConfig{}));
}

void read_recipe_arguments(const CLI::App& app, const std::string& recipe, RunConfig& config) {
  std::vector<std::string> overrides = app.remaining();
  std::string path = recipe;
  // The recipe's place may have been taken by the first override.
  if (path.find('=') != std::string::npos && !std::filesystem::exists(path)) {
    overrides.insert(overrides.begin(), path);
    path.clear();
  }
  for (const std::string& item : overrides)
    if (item.starts_with('-')) {
      fmt::print(stderr, "{}: no option \"{}\"; --help lists them\n", app.get_name(), item);
      throw CommandDone{2};
    }
  read_recipe(path, overrides, config);
}

void set_threads(int threads) {
  if (threads > 0) omp_set_num_threads(threads);
}

void add_compute_option(CLI::App& app, Compute& compute) {
  constexpr auto names = enum_names(Compute{});
  app.add_option_function<std::string>(
         "--compute",
         [&compute, names](const std::string& name) {
           compute = static_cast<Compute>(std::ranges::find(names, name) - names.begin());
         },
         "float32, or bf16: the model's matrices stored and multiplied in bf16")
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())));
}

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  if (!path.empty()) write_file_durably(path, std::string_view(json.dump(2) + "\n"));
}

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

EvalText tokenized(const LoadedModel& model, const std::string& name, std::string_view document,
                   Index max_tokens) {
  const Tokenizer& tokenizer = model.require_tokenizer();
  EvalText text{name, tokenizer.encode(document), static_cast<std::int64_t>(document.size())};
  const auto start = model.document_start();
  const auto most = static_cast<std::size_t>(std::max<Index>(0, max_tokens - (start ? 1 : 0)));
  if (max_tokens > 0 && text.ids.size() > most) {
    text.ids.resize(most);
    text.bytes = static_cast<std::int64_t>(tokenizer.decode(text.ids).size());
  }
  if (start) text.ids.insert(text.ids.begin(), *start);
  return text;
}

}  // namespace

std::vector<EvalText> read_texts(const LoadedModel& model, const std::vector<std::string>& paths,
                                 const TextOptions& options) {
  std::vector<EvalText> texts;
  for (const auto& path :
       expand_text_paths(std::vector<std::filesystem::path>(paths.begin(), paths.end()))) {
    const std::string text = read_text_file(path);
    for (const std::string_view part : split_documents(text, options.separator)) {
      if (options.most > 0 && texts.size() == options.most) return texts;
      texts.push_back(tokenized(model, path.string(),
                                options.separator.empty() ? part : trimmed(part),
                                options.max_tokens));
    }
  }
  return texts;
}

void refuse_existing(const std::string& path, bool overwrite) {
  if (!overwrite && std::filesystem::exists(path))
    fail("{}: exists already; choose another name, or add --overwrite", path);
}

}  // namespace focus
