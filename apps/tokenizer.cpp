#include <cmath>
#include <iostream>
#include <iterator>

#include "apps/command.h"
#include "apps/terminal/progress.h"
#include "autograd/base/check.h"
#include "data/files/durable_file.h"
#include "data/text/text.h"
#include "data/tokenizers/bpe_trainer.h"
#include "data/tokenizers/tokenizer_config.h"

namespace focus::app {
namespace {

struct TokenizerArguments {
  std::string tokenizer, text, out;
  std::vector<std::string> texts;
  BpeTrainerOptions training;
  bool overwrite = false;
};

/// The words of all texts, counted.
BpeTrainer counted_words(const TokenizerArguments& o) {
  BpeTrainer trainer(o.training);
  const auto files =
      expand_text_paths(std::vector<std::filesystem::path>(o.texts.begin(), o.texts.end()));
  Progress progress({.label = "words", .total_steps = static_cast<std::int64_t>(files.size())});
  std::int64_t done = 0;
  for (const std::filesystem::path& file : files) {
    for_each_text(file, [&](const std::string& text) { trainer.add(text); });
    progress.update(++done, NAN, 0);
  }
  progress.finish();
  return trainer;
}

void train_bpe(const TokenizerArguments& o) {
  const bool one_file = o.out.ends_with(".json");
  const std::filesystem::path folder =
      one_file ? std::filesystem::path(o.out).parent_path() : std::filesystem::path(o.out);
  const std::filesystem::path file =
      one_file ? std::filesystem::path(o.out) : folder / "tokenizer.json";
  refuse_existing(file.string(), o.overwrite);
  const BpeTrainer trainer = counted_words(o);
  if (trainer.words() == 0) {
    fail("the texts hold only whitespace and {}: there is nothing to train on",
         o.training.special_token);
  }
  Progress progress({.label = "merges", .total_steps = o.training.vocab_size});
  const BpeTrainer::Model model =
      trainer.train([&](std::int32_t tokens) { progress.update(tokens, NAN, 0); });
  progress.finish();

  make_folder_durably(folder);
  if (!one_file) {
    write_file_durably(folder / kTokenizerConfig,
                       std::string_view(trainer.tokenizer_config_json()));
  }
  write_file_durably(file, std::string_view(trainer.tokenizer_json(model)));
  if (static_cast<std::int32_t>(model.tokens.size()) < o.training.vocab_size) {
    fmt::print(stderr,
               "notice: {} tokens instead of {}: no other pair occurs {} times; give more text\n",
               model.tokens.size(), o.training.vocab_size, o.training.min_frequency);
  }
  fmt::print("{}: {} tokens, {} merges, from {} words, {} of them distinct\n", file.string(),
             model.tokens.size(), model.merges.size(), trainer.words(), trainer.distinct_words());
}

std::string read_input(const std::string& path) {
  if (!path.empty()) return read_document_file(path);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

void encode_text(const TokenizerArguments& o) {
  const auto tokenizer = open_tokenizer(o.tokenizer);
  const std::string text = read_input(o.text);
  fmt::print("{}\n", fmt::join(tokenizer->encode(text), " "));
}

void decode_ids(const TokenizerArguments& o) {
  const auto tokenizer = open_tokenizer(o.tokenizer);
  const std::string input = read_input(o.text);
  std::vector<std::int32_t> ids;
  try {
    ids = parse_ids(input);
  } catch (const std::runtime_error& error) {
    fail("{}: {}", o.text.empty() ? "standard input" : o.text, error.what());
  }
  const std::string text = tokenizer->decode(ids);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void add_tokenizer(CLI::App& command, TokenizerArguments& o) {
  command
      .add_option("tokenizer", o.tokenizer,
                  "a tokenizer file, its folder, a model (.h5, GGUF), or bytes")
      ->required();
}

}  // namespace

int run_tokenizer(Arguments arguments) {
  TokenizerArguments o;
  CLI::App app(
      "Trains a byte-level BPE tokenizer; encodes and decodes with any supported tokenizer.",
      "focus tokenizer");
  app.require_subcommand(1);

  CLI::App& train = *app.add_subcommand(
      "train", "trains a byte-level BPE tokenizer on texts and writes a tokenizer.json");
  train.add_option("--text", o.texts, "texts (.txt, .txt.xz) or folders of them")->required();
  train
      .add_option("--vocab-size", o.training.vocab_size,
                  "vocabulary size: the special token, 256 bytes and the merges")
      ->capture_default_str();
  train
      .add_option("--out", o.out,
                  "tokenizer.json to write, or a folder, which gets a tokenizer_config.json too")
      ->type_name(kFolder)
      ->required();
  train
      .add_option("--special", o.training.special_token,
                  "special token with id 0; it ends a document in a text")
      ->capture_default_str();
  train.add_flag("--overwrite", o.overwrite, "replace existing files");

  CLI::App& encode = *app.add_subcommand("encode", "prints the token ids of a text");
  add_tokenizer(encode, o);
  encode.add_option("--text", o.text, "text file; standard input by default");

  CLI::App& decode = *app.add_subcommand("decode", "prints the text of token ids");
  add_tokenizer(decode, o);
  decode.add_option("--ids", o.text, "text file; standard input by default");

  parse_arguments(app, arguments);
  if (train.parsed()) train_bpe(o);
  if (encode.parsed()) encode_text(o);
  if (decode.parsed()) decode_ids(o);
  return 0;
}

}  // namespace focus::app
