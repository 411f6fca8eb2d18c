#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/tensor.h"

// Requests as the lm-evaluation-harness makes them, a JSON object a line:
//   {"type": "loglikelihood", "context": "...", "continuation": "..."}
//   {"type": "loglikelihood_rolling", "text": "..."}
//   {"type": "generate_until", "context": "...", "until": ["\n"], "max_gen_toks": 256}
// An "id" of any kind is given back with the answer. Apart from what answers them (requests.h), so
// that reading them can be fuzzed without the kernels.
namespace focus {

struct ScoreRequest {
  enum class Type { loglikelihood, loglikelihood_rolling, generate_until };

  Type type = Type::loglikelihood;
  std::string id = {};       // as JSON; empty where none was given
  std::string context = {};  // of rolling requests, the text
  std::string continuation = {};
  std::vector<std::string> until = {};
  Index max_gen_toks = 256;
  std::string where = {};  // "in.jsonl:3", for messages
};
constexpr auto enum_names(ScoreRequest::Type) {
  return std::array<std::string_view, 3>{"loglikelihood", "loglikelihood_rolling",
                                         "generate_until"};
}

/// Throws std::runtime_error, one line that names the line of the file, where it is not JSON, a
/// field is missing, unknown or of another type; and where there is no request.
std::vector<ScoreRequest> read_requests(const std::filesystem::path& path);

}  // namespace focus
