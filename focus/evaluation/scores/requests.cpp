#include "focus/evaluation/scores/requests.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "data/files/json_reader.h"
#include "data/files/read_file.h"
#include "data/settings/config.h"
#include "focus/models/generation.h"

namespace focus {
namespace {

using Type = ScoreRequest::Type;

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
  answer.pairs_touched = share_distant(touched);
  return answer;
}

void refuse_generation(const ActiveAttention& active, const std::vector<ScoreRequest>& requests) {
  const auto generates = std::ranges::find(requests, Type::generate_until, &ScoreRequest::type);
  if (generates != requests.end() && !active.causal())
    fail("{}: with {} attention depends on later tokens, so it cannot generate", generates->where,
         active.title());
}

ScoreAnswer generated_answer(LoadedModel& model, const ActiveAttention& active,
                             const RequestEncoder& encoder, const ScoreRequest& request,
                             const TouchedPairs& touches) {
  const auto [prompt, cut] =
      encoder.prompt(request.context, encoder.max_length() - request.max_gen_toks, request.where);
  // Soft attention reads every key, a mechanism has no cache, and all layers have one or none.
  const bool cached = active.mechanism() == nullptr && touches.layers.empty() &&
                      active.mode().kind != AttentionKind::soft;
  Generator generator(*model.decoder, model.focus(), active.mode(),
                      cached ? std::optional(CacheDtype::float32) : std::nullopt);
  const Generated done = generate(model, generator, prompt,
                                  {.max_new_tokens = request.max_gen_toks, .until = request.until});
  return {.text = done.text,
          .stop = done.stop,
          .tokens = static_cast<Index>(done.ids.size()),
          .cut = cut,
          .pairs_touched = share_distant(touches.count(model.decoder->config(), generator.size()))};
}

}  // namespace

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
  json["pairs_touched"] = answer.pairs_touched;
  if (answer.cut > 0) json["cut"] = answer.cut;
  return json.dump();
}

std::vector<ScoreAnswer> answer_requests(LoadedModel& model, const AttentionSpec& attention,
                                         const std::vector<ScoreRequest>& requests,
                                         const ScoreOptions& options, const ShareDone& progress,
                                         ScoringWork* work) {
  const RequestEncoder encoder(model, options.start, options.max_length);
  const Encoded all = encode_all(requests, encoder);
  const ActiveAttention active(model, attention);
  refuse_generation(active, requests);
  const auto scored_requests =
      static_cast<double>(requests.size()) -
      static_cast<double>(std::ranges::count(requests, Type::generate_until, &ScoreRequest::type));
  const double share_scored = scored_requests / static_cast<double>(requests.size());
  const std::vector<ScoredPair> scored = score_pairs(
      *model.decoder, all.pairs, {.causal = active.causal(), .share = options.share},
      [&](double share) {
        if (progress) progress(share * share_scored);
      },
      work);
  const TouchedPairs touches = TouchedPairs::of(active);
  std::vector<ScoreAnswer> answers;
  std::size_t generated = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Encoded::Part& part = all.parts[i];
    if (requests[i].type != Type::generate_until) {
      answers.push_back(
          scored_answer(std::span(all.pairs).subspan(part.begin, part.end - part.begin),
                        std::span(scored).subspan(part.begin, part.end - part.begin),
                        model.decoder->config(), touches));
      answers.back().cut = part.cut;
      continue;
    }
    answers.push_back(generated_answer(model, active, encoder, requests[i], touches));
    ++generated;
    if (progress)
      progress(share_scored +
               static_cast<double>(generated) / static_cast<double>(requests.size()));
  }
  return answers;
}

}  // namespace focus
