#include "apps/command.h"
#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/synthetic/far_corpus.h"
#include "data/text/format.h"

namespace focus::app {

int run_corpus(Arguments arguments) {
  std::string out, questions, separator = "\n<|endoftext|>\n";
  FarCorpusOptions options;
  CLI::App app(
      "Writes the built-in text: invented tales whose names, places and numbers recur hundreds of "
      "bytes later, or documents with long-range questions and answers. The same seed gives the "
      "same bytes.",
      "focus corpus");
  app.add_option("--out", out, "text file to write")->required();
  add_settings(app, config_fields(options));
  app.add_option("--separator", separator,
                 "separator between two documents (default: a line <|endoftext|>)");
  app.add_option("--questions", questions,
                 "also write the documents with questions as JSON lines with their answers marked, "
                 "the format that focus eval --recall reads");
  parse_arguments(app, arguments);
  if (!questions.empty() && (options.kind == CorpusKind::tales || options.share == 0))
    fail("--questions: tales mark no answers; the other kinds do");
  const std::vector<AskedDocument> documents = generate_far_documents(options);
  const std::string text = joined_texts(documents, separator);
  write_file_durably(out, std::string_view(text));
  if (!questions.empty())
    write_file_durably(questions, std::string_view(questions_jsonl(documents)));
  fmt::print("{}: {} documents, {}\n", out, options.documents,
             format_bytes(static_cast<double>(text.size())));
  return 0;
}

}  // namespace focus::app
