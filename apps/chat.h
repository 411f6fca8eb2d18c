#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "focus/models/model_files.h"

namespace focus::app {

/// What --chat and its options say: a conversation instead of a prompt.
struct ChatOptions {
  bool chat = false;
  std::string system, user, messages, chat_template;
  bool show_prompt = false;

  /// Declares --chat, --system, --chat-template and --show-prompt, and in `prompt`, of whose
  /// options one is given, --user and --messages.
  void add_to(CLI::App& app, CLI::Option_group& prompt);
};

/// The text that the model continues: the conversation through its chat template (or the
/// one that is named), up to where the assistant's turn begins. `prompt` is the user's message
/// where neither --user nor --messages gives one. Throws std::runtime_error with one line.
std::string chat_prompt(const ChatOptions& options, const std::string& prompt,
                        const LoadedModel& model);

}  // namespace focus::app
