#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "apps/command.h"
#include "autograd/base/check.h"

namespace focus::app {
namespace {

/// The words of "--max-new-tokens".
std::set<std::string> words_of(std::string_view name) {
  const std::vector<std::string> parts = CLI::detail::split(std::string(name), '-');
  std::set<std::string> words(parts.begin(), parts.end());
  words.erase("");
  return words;
}

/// The key of a config that "--num-groups" may be meant for, if any.
std::string key_named(std::string name) {
  name.erase(0, name.find_first_not_of('-'));
  std::ranges::replace(name, '-', '_');
  RunConfig config;
  const std::vector<ConfigField> fields = config_fields(config);
  std::string nearest;  // the shortest: optim.lr and not two_phase.lr
  for (const ConfigField& field : fields)
    if (field.text && (field.key == name || field.key.ends_with("." + name)) &&
        (nearest.empty() || field.key.size() < nearest.size()))
      nearest = field.key;
  return nearest;
}

bool is_free(const CLI::Option* option) {
  return option->count() == 0 && !option->get_positional() && option->get_items_expected() > 0;
}

/// The options that are required and missing, and the first of each group of which one is.
std::vector<const CLI::Option*> missing_options(const CLI::App& app) {
  std::vector<const CLI::Option*> missing;
  for (const CLI::Option* option : app.get_options())
    if (option->get_required() && is_free(option)) missing.push_back(option);
  for (const CLI::App* part : app.get_subcommands({})) {
    const std::vector<const CLI::Option*> options = part->get_options();
    const bool is_group = part->get_name().empty();
    const auto is_given = [](const CLI::Option* option) { return option->count() > 0; };
    if (!is_group && part->parsed())
      missing = missing_options(*part);
    else if (is_group && part->get_require_option_min() > 0 &&
             std::ranges::none_of(options, is_given))
      missing.push_back(*std::ranges::find_if(options, is_free));
  }
  return missing;
}

/// The option that a word without one may be meant for; null where none suggests itself.
const CLI::Option* option_for(const CLI::App& app, const std::string& word) {
  const std::filesystem::path path = word;
  std::error_code none;  // a prompt may be too long for a name
  const bool is_file = std::filesystem::exists(path, none);
  const bool has_weights = std::filesystem::is_directory(path, none) || path.extension() == ".h5";
  if (is_file)  // which option takes such a file
    for (const std::string_view name : {"--adapter", "--run", "--text", "--prompt-file"})
      for (const CLI::Option* option : all_options(app))
        if (option->get_name() == name && is_free(option) &&
            has_weights == (name == "--adapter" || name == "--run"))
          return option;
  for (const CLI::Option* option : missing_options(app))
    if (!is_file || !is_output(option)) return option;
  return nullptr;
}

/// Names the first word that belongs to no option; empty if all words do.
std::string stray_word(const CLI::App& app) {
  if (app.get_allow_extras()) return "";
  for (const std::string& word : app.remaining(true)) {
    if (word.starts_with('-')) continue;
    const std::string shown =
        word.find(' ') == std::string::npos ? word : fmt::format("\"{}\"", word);
    const CLI::Option* const option = option_for(app, word);
    return fmt::format("{} belongs to no option; {}", shown,
                       option == nullptr
                           ? fmt::format("see {} --help", app.get_name())
                           : fmt::format("did you mean {} {}?", option->get_name(), shown));
  }
  return "";
}

/// Says what was expected of an option whose value does not have its type; otherwise empty.
std::string unreadable_value(const CLI::App& app, const CLI::Error& error) {
  if (error.get_name() != "ConversionError") return "";
  for (const CLI::Option* option : all_options(app))
    if (std::string_view(error.what()).find(option->get_name() + " =") != std::string_view::npos)
      return fmt::format(
          "{}: expected {}, got {}", option->get_name(),
          option->get_type_name().starts_with("FLOAT") ? "a number" : "a whole number",
          fmt::join(option->results(), ","));
  return "";
}

}  // namespace

bool is_output(const CLI::Option* option) {
  constexpr std::array<std::string_view, 5> kNames = {"--out", "--json", "--html", "--gguf",
                                                      "--questions"};
  return std::ranges::count(kNames, std::string_view(option->get_name())) > 0;
}

std::vector<const CLI::Option*> all_options(const CLI::App& app) {
  std::vector<const CLI::Option*> all = app.get_options();
  for (const CLI::App* part : app.get_subcommands({})) {
    const std::vector<const CLI::Option*> own = all_options(*part);
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::string unknown_flag(const CLI::App& app) {
  for (const std::string& word : app.remaining(true)) {
    if (!word.starts_with('-') || word == "--") continue;
    const std::string name = word.substr(0, word.find('='));
    if (app.get_allow_extras())
      if (const std::string key = key_named(name); !key.empty())
        return fmt::format("unknown option {}; keys of the config are given as {}=VALUE", name,
                           key);
    std::vector<std::string> known = {"--log-level", "--threads"};
    for (const CLI::Option* option : all_options(app)) known.push_back(option->get_name());
    return fmt::format("unknown option {}; {}", name,
                       suggestion_for(name, known, fmt::format("see {} --help", app.get_name())));
  }
  return "";
}

void explain_missing(const CLI::App& app, const CLI::ParseError& error) {
  for (const CLI::Option* place : app.get_options())
    if (place->get_positional() && place->get_required() && place->count() == 0)
      for (const CLI::Option* taker : all_options(app))
        if (taker->get_allow_extra_args() && taker->count() > 0)
          fail("{}: {} took \"{}\"; put {} before it, or -- between them", error.what(),
               taker->get_name(), taker->results().back(), place->get_name());
}

std::string failure_line(const CLI::App* app, const CLI::Error& error) {
  std::string problem = unknown_flag(*app);
  if (problem.empty()) problem = stray_word(*app);
  if (problem.empty()) problem = unreadable_value(*app, error);
  if (problem.empty()) problem = fmt::format("{}; see {} --help", error.what(), app->get_name());
  return fmt::format("{}: {}\n", app->get_name(), problem);
}

std::string suggestion_for(std::string_view name, const std::vector<std::string>& known,
                           std::string otherwise) {
  const std::size_t slip = std::min<std::size_t>(2, name.size() / 2);
  const auto distance = [&](const std::string& other) { return edit_distance(name, other); };
  const auto nearest = std::ranges::min_element(known, {}, distance);
  if (nearest != known.end() && distance(*nearest) <= slip)
    return fmt::format("did you mean {}?", *nearest);
  // --max-tokens for --max-new-tokens: all words of one are words of the other.
  const std::set<std::string> words = words_of(name);
  for (const std::string& other : known) {
    const std::set<std::string> others = words_of(other);
    if (!words.empty() && !others.empty() &&
        (std::ranges::includes(others, words) || std::ranges::includes(words, others)))
      return fmt::format("did you mean {}?", other);
  }
  return otherwise;
}

}  // namespace focus::app
