#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <sstream>

#include "apps/command.h"

namespace focus::app {
namespace {

struct HelpGroup {
  const char* title;
  std::vector<std::string_view> options;
};

const std::array kHelpGroups = {
    HelpGroup{"Model", {"--adapter", "--tokenizer", "--bos", "--precision"}},
    HelpGroup{"Text",
              {"--separator", "--context", "--stride", "--max-documents", "--max-tokens",
               "--beyond-positions", "--detokenize", "--dataset-text-field",
               "--completion-only-loss", "--assistant-only-loss", "--chat-template-path"}},
    HelpGroup{"Chat", {"--chat", "--system", "--chat-template", "--show-prompt"}},
    HelpGroup{"Sampling",
              {"--temperature", "--top-k", "--top-p", "--min-p", "--repetition-penalty",
               "--logit-bias", "--stop", "--seed"}},
    HelpGroup{"Output", {"--out", "--json", "--html", "--gguf", "--questions", "--overwrite"}}};

/// Columns of the terminal that standard output is; 0 for a pipe or a file.
std::size_t terminal_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

/// Where the second column of a line begins, or its only one.
std::size_t continuation_indent(const std::string& line, std::size_t width) {
  const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = line.find("  ", first);
  if (gap == std::string::npos) return first;
  const std::size_t second = line.find_first_not_of(' ', gap);
  return second <= width / 2 ? second : first + 2;
}

std::string wrapped(const std::string& text, std::size_t width) {
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line); all += line + '\n') {
    const std::size_t indent = continuation_indent(line, width);
    while (line.size() > width) {
      const std::size_t space = line.rfind(' ', width);
      if (space == std::string::npos || space <= indent) break;
      all += line.substr(0, space) + '\n';
      line = std::string(indent, ' ') + line.substr(space + 1);
    }
  }
  return all;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    constexpr std::size_t kNarrowest = 40;
    const std::string text = CLI::detail::find_and_replace(
        CLI::Formatter::make_help(app, std::move(name), mode), "\n\n\n", "\n\n");
    const std::size_t width = terminal_width();
    return width < kNarrowest ? text : wrapped(text, width);
  }

  /// A group of options of which some number is required.
  std::string make_expanded(const CLI::App* group) const override {
    if (!group->get_name().empty()) return CLI::Formatter::make_expanded(group);
    std::string title = group->get_group();
    title[0] = static_cast<char>(std::toupper(title[0]));
    if (group->get_require_option_min() > 0) title += " (one is required)";
    return make_group(title, false, group->get_options([](const CLI::Option* option) {
      return option->get_name() != "--help";
    }));
  }
};

}  // namespace

void arrange_help(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  for (const HelpGroup& group : kHelpGroups)
    for (const std::string_view name : group.options)
      if (CLI::Option* const option = app.get_option_no_throw(std::string(name)))
        option->group(group.title);
  for (CLI::App* const command : app.get_subcommands({}))
    if (!command->get_name().empty()) arrange_help(*command);
}

}  // namespace focus::app
