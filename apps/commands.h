#pragma once

#include <span>
#include <string>

// The subcommands, for the table in main.cpp.
namespace focus::app {

/// Arguments after the subcommand's name; the return value is the exit status.
using Arguments = std::span<const std::string>;

int run_import(Arguments arguments);
int run_export(Arguments arguments);
int run_logits(Arguments arguments);
int run_train(Arguments arguments);
int run_eval(Arguments arguments);
int run_score(Arguments arguments);
int run_fit(Arguments arguments);
int run_merge(Arguments arguments);
int run_compare(Arguments arguments);
int run_generate(Arguments arguments);
int run_info(Arguments arguments);
int run_leak_test(Arguments arguments);
int run_groups(Arguments arguments);
int run_corpus(Arguments arguments);
int run_report(Arguments arguments);
int run_speed(Arguments arguments);
int run_decode_speed(Arguments arguments);  // focus speed --decode
int run_tokenizer(Arguments arguments);
int run_bench_step(Arguments arguments);

/// Thrown once --help has been printed, or the arguments were refused: main returns `status`.
struct CommandDone {
  int status = 0;
};

/// Makes a mapped file that becomes shorter, or whose disk fails, end the program with a line that
/// names it and exit status 1.
void install_lost_file_signal();

}  // namespace focus::app
