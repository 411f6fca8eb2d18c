#pragma once

#include <string>
#include <vector>

#include "focus/generation/scheduler.h"
#include "focus/models/model_files.h"

namespace focus::app {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                // 0: any that is free
  std::string name, attention;    // of the model, for clients
  std::vector<std::string> keys;  // one of them comes with each request; none: without a key
  Scheduler::Limits limits = {.slots = 4, .waiting = 64, .undo = CacheFiles::kUndo};
};

/// Serves OpenAI's API over HTTP until SIGINT or SIGTERM. Prints where it listens. Throws
/// std::runtime_error where it cannot.
void serve(const LoadedModel& model, const GenerationModel& generation,
           const ServerOptions& options);

}  // namespace focus::app
