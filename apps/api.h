#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "focus/generation/continuation.h"
#include "focus/models/model_files.h"

// What clients of OpenAI's API send and get, as JSON: /v1/completions and /v1/chat/completions.
namespace focus::app {

/// Why a request is not answered: a status of HTTP, and OpenAI's code for it, or none.
struct ApiError : std::runtime_error {
  ApiError(int status_, std::string code_, const std::string& message)
      : std::runtime_error(message), status(status_), code(std::move(code_)) {}
  int status;
  std::string code;
  /// {"error": {...}}
  std::string body() const;
};

struct ApiRequest {
  bool chat = false;
  std::vector<std::vector<std::int32_t>> prompts;
  GenerationOptions options;
  bool echo = false;  // the prompt comes before the answer
  bool stream = false, stream_usage = false;
};

/// From a body. Throws ApiError (400), one line, where it is no JSON, a field is missing, unknown,
/// of another type, out of range or not supported, or a prompt has no tokens or too many.
ApiRequest read_api_request(bool chat, std::string_view body, const LoadedModel& model);

/// Writes answers to one request.
class ApiAnswer {
 public:
  /// `model` and `attention`: their names for clients. The tokenizer and the request must outlive
  /// it.
  ApiAnswer(const ApiRequest& request, const Tokenizer& tokenizer, const std::string& model,
            const std::string& attention);

  /// All of it, of one Generated for each prompt.
  std::string whole(std::span<const Generated> made) const;
  /// Events of a stream: its begin (chat: the role, echo: the prompt), text with the
  /// log-probabilities from number `first` on, and the end with why.
  std::string begin(const Generated& made) const;
  std::string part(const std::string& text, const Generated& made, std::size_t first) const;
  std::string end(const Generated& made) const;
  static std::string error(const ApiError& error);

 private:
  using Json = nlohmann::ordered_json;
  Json head(bool chunk) const;
  Json figures(const Generated& made) const;
  Json event(const std::string& text, const Json& logprobs, const Json& finish) const;
  Json logprobs(const std::vector<std::int32_t>& prompt, const Generated& made, std::size_t first,
                bool echo) const;

  const ApiRequest& request_;
  const Tokenizer& tokenizer_;
  std::string id_, model_, attention_;
  std::int64_t created_;
};

}  // namespace focus::app
