#include <nlohmann/json.hpp>

#include "data/files/utf8.h"
#include "focus/evaluation/scores/requests.h"
#include "tests/fuzz/harness.h"

/// Requests of `focus score`. What is read must be fit to be tokenized, and its id to be given
/// back.
void focus::fuzz::try_input(std::string_view input) {
  const MemoryFile on_disk(input);
  const std::string name = on_disk.path().string() + ":";
  const auto load = [&] {
    const std::vector<ScoreRequest> requests = read_requests(on_disk.path());
    if (requests.empty()) report("no requests, and no error");
    for (const ScoreRequest& request : requests) {
      if (!request.where.starts_with(name)) report("a request of nowhere");
      if (!request.id.empty() && !nlohmann::json::accept(request.id))
        report("an id that is not JSON: " + request.id);
      for (const std::string* text : {&request.context, &request.continuation})
        if (!is_valid_utf8(*text)) report("a text that is not UTF-8");
      for (const std::string& until : request.until)
        if (!is_valid_utf8(until)) report("an end that is not UTF-8");
      if (request.max_gen_toks < 1) report("nothing to generate");
      if (request.type == ScoreRequest::Type::loglikelihood && request.continuation.empty())
        report("nothing to score");
    }
  };
  run_loader(input.size(), load, {name});
}
