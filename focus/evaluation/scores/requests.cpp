#include "focus/evaluation/scores/requests.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/chat/jinja/python_text.h"
#include "data/files/file_kind.h"
#include "data/files/input_file.h"
#include "data/files/json_reader.h"
#include "data/settings/config.h"
#include "focus/models/generation.h"

namespace focus {

std::pair<std::string, std::string> move_trailing_space(std::string_view context,
                                                        std::string_view continuation) {
  const std::size_t end = jinja::strip(context, /*left=*/false, /*right=*/true).size();
  return {std::string(context.substr(0, end)),
          std::string(context.substr(end)) + std::string(continuation)};
}

std::vector<TokenPair> rolling_windows(const TokenIds& tokens, std::int32_t prefix,
                                       Index max_length) {
  check(max_length >= 1, "rolling windows of {} tokens are not valid", max_length);
  std::vector<TokenPair> windows;
  const auto n = static_cast<Index>(tokens.size());
  for (Index done = 0; done < n;) {
    const Index scored = std::min(n - done, max_length), end = done + scored;
    TokenPair& window = windows.emplace_back();
    if (done == 0)
      window.context = {prefix};
    else
      window.context.assign(tokens.begin() + (end - max_length - 1), tokens.begin() + done);
    window.continuation.assign(tokens.begin() + done, tokens.begin() + end);
    done = end;
  }
  return windows;
}

Index cut_left(TokenPair& pair, Index max_length) {
  const Index cut = std::max<Index>(0, pair.fed() - max_length);
  check(cut < static_cast<Index>(pair.context.size()), "cut_left: {} tokens to score, {} fit",
        pair.continuation.size(), max_length);
  pair.context.erase(pair.context.begin(), pair.context.begin() + cut);
  return cut;
}

RequestEncoder::RequestEncoder(const LoadedModel& model, TextStart start, Index max_length)
    : model_(model),
      tokenizer_(model.require_tokenizer()),
      start_(start),
      prefix_(model.document_start()) {
  if (!prefix_) prefix_ = model.document_end();
  const Index positions = model.decoder->config().max_position_embeddings;
  if (max_length > positions)
    fail("max-length {}: {} has only {} positions", max_length, model.where, positions);
  max_length_ = max_length > 0 ? max_length : positions;
}

TokenIds RequestEncoder::encode(std::string_view text, const std::string& where) const {
  if (start_ == TextStart::tokenizer) return model_.prompt_ids(text, where);
  TokenIds ids = tokenizer_.encode(text);
  if (start_ == TextStart::document && prefix_ && (ids.empty() || ids.front() != *prefix_))
    ids.insert(ids.begin(), *prefix_);
  model_.require_ids(ids, where);
  return ids;
}

std::int32_t RequestEncoder::need_prefix(const std::string& where) const {
  if (!prefix_)
    fail(
        "{}: no token precedes the first, and neither the model nor its tokenizer has a BOS or EOS "
        "id",
        where);
  return *prefix_;
}

TokenPair RequestEncoder::pair(std::string_view context, std::string_view continuation,
                               const std::string& where) const {
  const auto [before, after] = move_trailing_space(context, continuation);
  TokenPair pair;
  if (!before.empty()) {
    pair.context = encode(before, where);
    const TokenIds whole = encode(before + after, where);
    const std::size_t given = std::min(pair.context.size(), whole.size());
    pair.continuation.assign(whole.begin() + static_cast<std::ptrdiff_t>(given), whole.end());
  } else {
    pair.continuation = tokenizer_.encode(after);
    model_.require_ids(pair.continuation, where);
    if (!pair.continuation.empty() && prefix_ && pair.continuation.front() == *prefix_)
      pair.continuation.erase(pair.continuation.begin());
  }
  if (pair.context.empty()) pair.context = {need_prefix(where)};
  if (pair.continuation.empty()) fail("{}: the continuation has no tokens to score", where);
  if (static_cast<Index>(pair.continuation.size()) > max_length_)
    fail("{}: the continuation has {} tokens, but only {} fit", where, pair.continuation.size(),
         max_length_);
  return pair;
}

std::vector<TokenPair> RequestEncoder::rolling(std::string_view text,
                                               const std::string& where) const {
  const TokenIds ids = tokenizer_.encode(text);
  model_.require_ids(ids, where);
  std::vector<TokenPair> windows = rolling_windows(ids, need_prefix(where), max_length_);
  if (windows.empty()) fail("{}: the text has no tokens to score", where);
  return windows;
}

std::pair<TokenIds, Index> RequestEncoder::prompt(std::string_view context, Index most,
                                                  const std::string& where) const {
  TokenIds ids = encode(context, where);
  if (ids.empty()) ids = {need_prefix(where)};
  const Index cut = std::max<Index>(0, static_cast<Index>(ids.size()) - most);
  ids.erase(ids.begin(), ids.begin() + cut);
  return {std::move(ids), cut};
}

namespace {

using Type = ScoreRequest::Type;

/// The keys of each type, beside "type" and "id".
const std::array<std::vector<std::string>, 3> kKeys = {
    {{"context", "continuation"}, {"text"}, {"context", "until", "max_gen_toks"}}};

Type read_type(const JsonView& request) {
  constexpr auto names = enum_names(Type{});
  const JsonView view = request.get("type");
  if (view.is_null())
    fail("{}: \"type\" is missing; expected {}", request.where(), choices_text(names));
  const auto found = std::ranges::find(names, view.string());
  if (found == names.end())
    fail("{}: {}; expected {}", view.where(), shown_json(view.json()), choices_text(names));
  return static_cast<Type>(found - names.begin());
}

std::vector<std::string> read_until(const JsonView& view) {
  if (view.is_null()) return {};
  if (view.json().is_string()) return {view.string()};
  std::vector<std::string> until;
  for (std::size_t i = 0; i < view.array_size(); ++i) until.push_back(view.item(i).string());
  return until;
}

ScoreRequest read_request(std::string_view line, const std::string& where) {
  const nlohmann::json json = parse_strict_json(line, where);
  const JsonView view(json, where);
  ScoreRequest request{.type = read_type(view), .where = where};
  const std::vector<std::string>& keys = kKeys.at(static_cast<std::size_t>(request.type));
  for (const auto& [key, value] : view.object().items())
    if (key != "type" && key != "id" && std::ranges::find(keys, key) == keys.end())
      fail("{}: {} is not a field of {}, which has {}", where, json_quoted(key),
           value_text(request.type), fmt::join(keys, ", "));
  if (const auto id = json.find("id"); id != json.end()) request.id = id->dump();
  const bool rolling = request.type == Type::loglikelihood_rolling;
  request.context = view.at(rolling ? "text" : "context").string();
  if (request.type == Type::loglikelihood) {
    request.continuation = view.at("continuation").string();
    if (request.continuation.empty()) fail("{}: the continuation is empty", where);
  } else if (request.type == Type::generate_until) {
    request.until = read_until(view.get("until"));
    if (const JsonView most = view.get("max_gen_toks"); !most.is_null())
      request.max_gen_toks = most.integer(1 << 24);
    if (request.max_gen_toks < 1) fail("{}: max_gen_toks is 0", where);
  }
  return request;
}

/// The tokens of all requests that are scored, one after the other, and what each has of them.
struct Encoded {
  struct Part {
    std::size_t begin = 0, end = 0;  // of `pairs`
    Index cut = 0;
  };
  std::vector<TokenPair> pairs;
  std::vector<Part> parts;
};

Encoded encode_all(const std::vector<ScoreRequest>& requests, const RequestEncoder& encoder) {
  Encoded all;
  for (const ScoreRequest& request : requests) {
    Encoded::Part part{all.pairs.size(), all.pairs.size()};
    if (request.type == Type::loglikelihood) {
      all.pairs.push_back(encoder.pair(request.context, request.continuation, request.where));
      part.cut = cut_left(all.pairs.back(), encoder.max_length());
    } else if (request.type == Type::loglikelihood_rolling) {
      std::ranges::move(encoder.rolling(request.context, request.where),
                        std::back_inserter(all.pairs));
    } else if (request.max_gen_toks >= encoder.max_length()) {
      fail("{}: max_gen_toks {} leaves no room for a context in {} tokens", request.where,
           request.max_gen_toks, encoder.max_length());
    } else {
      encoder.prompt(request.context, 1, request.where);
    }
    part.end = all.pairs.size();
    all.parts.push_back(part);
  }
  return all;
}

/// Makes contexts the user's messages, up to where the assistant answers.
void use_chat_template(std::vector<ScoreRequest>& requests, const LoadedModel& model) {
  const ExampleFormat format = example_format(model, {});
  for (ScoreRequest& request : requests) {
    auto messages = nlohmann::ordered_json::array();
    messages.push_back({{"role", "user"}, {"content", request.context}});
    if (request.type != Type::loglikelihood_rolling)
      request.context = format.chat({.messages = messages});
  }
}

double share_distant(const PairCounts& pairs) {
  return pairs.all == 0 ? 0 : static_cast<double>(pairs.distant) / static_cast<double>(pairs.all);
}

ScoreAnswer scored_answer(std::span<const TokenPair> pairs, std::span<const ScoredPair> scored,
                          const ModelConfig& config, const TouchedPairs& touches) {
  ScoreAnswer answer;
  PairCounts touched;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    answer.log_likelihood += scored[i].sum();
    answer.is_greedy = answer.is_greedy && scored[i].is_greedy;
    answer.tokens += static_cast<Index>(pairs[i].continuation.size());
    touched += touches.count(config, pairs[i].fed());
  }
  answer.pairs = touched.all;
  answer.pairs_touched = share_distant(touched);
  return answer;
}

ScoreAnswer generated_answer(LoadedModel& model, const ActiveAttention& active,
                             const RequestEncoder& encoder, const ScoreRequest& request,
                             const TouchedPairs& touches) {
  const auto [prompt, cut] =
      encoder.prompt(request.context, encoder.max_length() - request.max_gen_toks, request.where);
  // Soft attention reads every key, and a mechanism has no cache.
  const bool cached = active.mechanism() == nullptr && active.mode().kind != AttentionKind::soft;
  const GenerationModel generation = generation_model(
      model, active.mode(), cached ? std::optional(CacheDtype::float32) : std::nullopt);
  GenerationOptions options;
  options.max_new_tokens = request.max_gen_toks;
  options.until = request.until;
  const Generated done = generate(generation, prompt, options);
  return {
      .text = done.text,
      .stop = done.stop,
      .tokens = static_cast<Index>(done.ids.size()),
      .cut = cut,
      .pairs_touched = share_distant(touches.count(model.decoder->config(), done.computed_tokens))};
}

}  // namespace

std::vector<ScoreRequest> read_requests(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  require_text(text, path);
  return parse_requests(text, path.string());
}

std::vector<ScoreRequest> parse_requests(const std::string& text, const std::string& where) {
  std::vector<ScoreRequest> requests;
  for_each_row(text, [&](std::string_view line, std::size_t number) {
    requests.push_back(read_request(line, fmt::format("{}:{}", where, number)));
  });
  if (requests.empty()) fail("{}: no requests in it", where);
  return requests;
}

std::string answer_line(const ScoreRequest& request, const ScoreAnswer& answer) {
  nlohmann::ordered_json json;
  if (!request.id.empty()) json["id"] = nlohmann::ordered_json::parse(request.id);
  json["type"] = value_text(request.type);
  if (request.type == Type::generate_until) {
    json["text"] = answer.text;
    json["stop"] = answer.stop;
  } else {
    json["log_likelihood"] = answer.log_likelihood;
  }
  json["tokens"] = answer.tokens;
  if (request.type == Type::loglikelihood) json["is_greedy"] = answer.is_greedy;
  if (request.type != Type::generate_until) json["pairs"] = answer.pairs;
  json["pairs_touched"] = answer.pairs_touched;
  if (answer.cut > 0) json["cut"] = answer.cut;
  return json_text(json);
}

std::vector<ScoreAnswer> answer_requests(LoadedModel& model, const AttentionSpec& attention,
                                         std::vector<ScoreRequest> requests,
                                         const ScoreOptions& options, const ShareDone& progress,
                                         ScoringWork* work) {
  if (options.chat) use_chat_template(requests, model);
  const RequestEncoder encoder(model, options.chat ? TextStart::none : options.start,
                               options.max_length);
  const Encoded all = encode_all(requests, encoder);
  const ActiveAttention active(model, attention);
  const auto generates = std::ranges::find(requests, Type::generate_until, &ScoreRequest::type);
  if (generates != requests.end() && !active.causal())
    fail("{}: with {} attention depends on later tokens, so it cannot generate", generates->where,
         active.title());
  const auto of_all = [&](std::ptrdiff_t count) {
    return static_cast<double>(count) / static_cast<double>(requests.size());
  };
  const double share_scored =
      1 - of_all(std::ranges::count(requests, Type::generate_until, &ScoreRequest::type));
  const std::vector<ScoredPair> scored = score_pairs(
      *model.decoder, all.pairs, {.causal = active.causal()},
      [&](double share) {
        if (progress) progress(share * share_scored);
      },
      work);
  const TouchedPairs touches = TouchedPairs::of(active);
  std::vector<ScoreAnswer> answers;
  std::ptrdiff_t generated = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Encoded::Part& part = all.parts[i];
    if (requests[i].type != Type::generate_until) {
      const std::size_t size = part.end - part.begin;
      answers.push_back(scored_answer(std::span(all.pairs).subspan(part.begin, size),
                                      std::span(scored).subspan(part.begin, size),
                                      model.decoder->config(), touches));
      answers.back().cut = part.cut;
      continue;
    }
    answers.push_back(generated_answer(model, active, encoder, requests[i], touches));
    if (progress) progress(share_scored + of_all(++generated));
  }
  return answers;
}

}  // namespace focus
