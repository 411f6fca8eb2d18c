#include "focus/groups/groupings.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "autograd/base/check.h"

namespace focus {
namespace {

/// Shares and classes of one window in one layer.
struct LayerShares {
  Index heads = 1, groups = 0;
  std::vector<std::uint8_t> classes;  // [tokens, heads]
  std::vector<double> shares;         // [tokens, heads, groups]
};

LayerShares of_tokens(FocusModel& focus, const MechanismInputs& in) {
  const FocusLayer& layer = focus.layers()[static_cast<std::size_t>(in.layer)];
  const Routing routing = route(in.h, layer, focus.config(), focus.mode.balance);
  const Tensor& g = routing.assignments.value();
  LayerShares of_layer{.heads = 1, .groups = g.cols(), .classes = {}, .shares = {}};
  for (const std::uint64_t set : membership(routing, 1))
    of_layer.classes.push_back(static_cast<std::uint8_t>(std::countr_zero(set)));
  of_layer.shares.assign(g.span().begin(), g.span().end());
  return of_layer;
}

LayerShares of_keys(FocusModel& focus, const MechanismInputs& in) {
  const KeyGroups& groups = focus.key_groups()[static_cast<std::size_t>(in.layer)];
  const Variable keys(in.k.value());
  const KeyClasses classes =
      nearest_classes(keys.value(), groups.centroids.value(), groups.bias.value());
  const Tensor z = class_scores(keys, groups.centroids, groups.bias).value();
  const auto tau = static_cast<double>(groups.temperature[0]);
  LayerShares of_layer{.heads = classes.heads,
                       .groups = classes.groups,
                       .classes = classes.classes,
                       .shares = std::vector<double>(static_cast<std::size_t>(z.size()))};
  for (Index row = 0; row < z.rows(); ++row) {
    const Real* scores = z.data() + row * z.cols();
    double* shares = of_layer.shares.data() + row * z.cols();
    const auto top = static_cast<double>(*std::max_element(scores, scores + z.cols()));
    double sum = 0;
    for (Index k = 0; k < z.cols(); ++k)
      sum += shares[k] = std::exp((static_cast<double>(scores[k]) - top) / tau);
    for (Index k = 0; k < z.cols(); ++k) shares[k] /= sum;
  }
  return of_layer;
}

double entropy_of(std::span<const double> shares) {
  double entropy = 0;
  for (const double g : shares)
    if (g > 0) entropy -= g * std::log(g);
  return entropy;
}

/// Adds one head's tokens of a window to its grouping; returns their shares.
std::vector<double> note(const LayerShares& of_layer, Index head, Grouping& grouping) {
  std::vector<double> shares;
  const Index tokens = static_cast<Index>(of_layer.classes.size()) / of_layer.heads;
  for (Index t = 0; t < tokens; ++t) {
    const Index row = t * of_layer.heads + head;
    const std::span<const double> g = std::span(of_layer.shares)
                                          .subspan(static_cast<std::size_t>(row * of_layer.groups),
                                                   static_cast<std::size_t>(of_layer.groups));
    const std::uint8_t c = of_layer.classes[static_cast<std::size_t>(row)];
    grouping.classes.push_back(c);
    grouping.confidence.push_back(static_cast<float>(g[c]));
    grouping.entropy += entropy_of(g);
    shares.insert(shares.end(), g.begin(), g.end());
  }
  return shares;
}

}  // namespace

TextWindows cut_windows(std::span<const DocumentTokens> documents, Index context) {
  check(context >= 1, "groups: windows of {} tokens", context);
  TextWindows text{.ids = {}, .windows = {0}, .documents = {0}, .names = {}};
  for (const DocumentTokens& document : documents) {
    if (document.ids.empty()) continue;
    const auto size = static_cast<Index>(document.ids.size());
    for (Index at = 0; at < size; at += context)
      text.windows.push_back(text.tokens() + std::min(size, at + context));
    text.ids.insert(text.ids.end(), document.ids.begin(), document.ids.end());
    text.documents.push_back(text.tokens());
    text.names.push_back(document.name);
  }
  return text;
}

std::vector<Grouping> collect_groupings(Decoder& decoder, FocusModel& focus,
                                        const TextWindows& text, const WindowVisitor& visit,
                                        const CollectProgress& progress) {
  const Index layers = static_cast<Index>(decoder.layers().size());
  check(layers == focus.shape().num_layers, "groups: {} layers for a decoder of {}",
        focus.shape().num_layers, layers);
  const Index heads = focus.groups_keys() ? focus.shape().kv_heads : 1;
  std::vector<Grouping> groupings;
  for (Index i = 0; i < layers * heads; ++i)
    groupings.push_back({.layer = i / heads,
                         .head = i % heads,
                         .groups = focus.config().num_groups,
                         .classes = {},
                         .confidence = {}});
  Index first = 0;
  const auto see = [&](const MechanismInputs& in) {
    const LayerShares of_layer = focus.groups_keys() ? of_keys(focus, in) : of_tokens(focus, in);
    for (Index head = 0; head < heads; ++head) {
      const auto number = static_cast<std::size_t>(in.layer * heads + head);
      std::vector<double> shares = note(of_layer, head, groupings[number]);
      if (visit) visit({number, first, of_layer.groups, std::move(shares)});
    }
  };
  std::vector<AttentionMechanism> own;
  for (const Block& block : decoder.layers()) own.push_back(block.self_attn.mechanism);
  const NoGrad guard;
  const ComposedMechanism watched(decoder, [&](const MechanismInputs& in) {
    see(in);
    const AttentionMechanism& attend = own[static_cast<std::size_t>(in.layer)];
    return attend ? attend(in) : attention(in.q, in.k, in.v, in.options);
  });
  for (Index w = 0; w < text.num_windows(); ++w) {
    first = text.windows[static_cast<std::size_t>(w)];
    decoder.hidden_states(text.window(w), 1);
    if (progress) progress(static_cast<double>(w + 1) / static_cast<double>(text.num_windows()));
  }
  for (Grouping& grouping : groupings)
    grouping.entropy /= std::max(1.0, static_cast<double>(grouping.tokens()));
  return groupings;
}

}  // namespace focus
