#pragma once

#include <span>
#include <string>

// The commands, for the table in main.cpp.
namespace focus::app {

/// Arguments after the command's name; commands return the exit status.
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
int run_step_speed(Arguments arguments);    // focus speed --step
int run_tokenizer(Arguments arguments);

/// Thrown after --help or a wrong argument: main returns `status`.
struct CommandDone {
  int status = 0;
};

/// If a mapped file becomes shorter or its disk fails, the program ends with a line that names it
/// and exit status 1.
void install_lost_file_signal();

}  // namespace focus::app
