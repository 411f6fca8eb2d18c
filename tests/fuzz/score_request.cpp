#include <nlohmann/json.hpp>

#include "data/files/utf8.h"
#include "focus/evaluation/scores/requests.h"
#include "tests/fuzz/harness.h"

/// Requests of `focus score`. What is read must be fit to be tokenized, and its id to be given
/// back.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace focus;
  const fuzz::MemoryFile input({data, size});
  const std::string name = input.path().string() + ":";
  const auto load = [&] {
    const std::vector<ScoreRequest> requests = read_requests(input.path());
    if (requests.empty()) fuzz::report("no requests, and no error");
    for (const ScoreRequest& request : requests) {
      if (!request.where.starts_with(name)) fuzz::report("a request of nowhere");
      if (!request.id.empty() && !nlohmann::json::accept(request.id))
        fuzz::report("an id that is not JSON: " + request.id);
      for (const std::string* text : {&request.context, &request.continuation})
        if (!is_valid_utf8(*text)) fuzz::report("a text that is not UTF-8");
      for (const std::string& until : request.until)
        if (!is_valid_utf8(until)) fuzz::report("an end that is not UTF-8");
      if (request.max_gen_toks < 1) fuzz::report("nothing to generate");
      if (request.type == ScoreRequest::Type::loglikelihood && request.continuation.empty())
        fuzz::report("nothing to score");
    }
  };
  fuzz::run_loader(size, load, {name});
  return 0;
}
