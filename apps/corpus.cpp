#include "data/text/corpus.h"

#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "data/files/durable_file.h"

namespace focus {

int run_corpus(Arguments arguments) {
  std::string out;
  CorpusOptions options;
  options.separator = "\n<|endoftext|>\n";
  CLI::App app(
      "Writes the built-in text: invented tales whose names, places and numbers recur hundreds of "
      "bytes "
      "later. The same seed gives the same bytes.",
      "focus corpus");
  app.add_option("--out", out, "the text file to write")->required();
  app.add_option("--documents", options.documents, "tales")->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "another seed, other tales");
  app.add_option("--separator", options.separator,
                 "what stands between two tales (default: a line <|endoftext|>)");
  parse_arguments(app, arguments);
  const std::string text = generate_corpus(options);
  write_file_durably(out, std::string_view(text));
  fmt::print("{}: {} documents, {}\n", out, options.documents,
             format_bytes(static_cast<double>(text.size())));
  return 0;
}

}  // namespace focus
