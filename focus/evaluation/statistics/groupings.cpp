#include "focus/evaluation/statistics/groupings.h"

#include <algorithm>
#include <cmath>

#include "autograd/base/check.h"
#include "data/files/utf8.h"
#include "data/tensors/tensor_source.h"

namespace focus {
namespace {

/// Adds one head's tokens of a window to its grouping.
void note(const GroupShares& shares, Index head, GroupAssignments& grouping) {
  const auto heads = static_cast<std::size_t>(shares.heads);
  const auto groups = static_cast<std::size_t>(shares.groups);
  for (auto row = static_cast<std::size_t>(head); row < shares.ids.size(); row += heads) {
    const auto g = std::span(shares.shares).subspan(row * groups, groups);
    grouping.group_of_token.push_back(shares.ids[row]);
    grouping.confidence.push_back(static_cast<float>(g[shares.ids[row]]));
    double entropy = 0;
    for (const double share : g)
      if (share > 0) entropy -= share * std::log(share);
    grouping.entropy += entropy;
  }
}

}  // namespace

TextWindows cut_windows(std::span<const EvalText> texts, Index context) {
  TextWindows cut;
  for (const EvalText& text : texts) {
    const Index most = context - text.lead(), size = static_cast<Index>(text.ids.size());
    check(most >= 1, "groups: windows of {} tokens have no room for a token", context);
    for (Index at = 0; at < size; at += most) {
      if (text.window_start) cut.ids.push_back(*text.window_start);
      cut.ids.insert(cut.ids.end(), text.ids.begin() + at,
                     text.ids.begin() + std::min(size, at + most));
      cut.windows.push_back(cut.tokens());
    }
    if (size > 0) cut.names.push_back(replace_invalid_utf8(text.name));
  }
  return cut;
}

std::vector<GroupAssignments> collect_groupings(Decoder& decoder, FocusModel& focus,
                                                const TextWindows& text,
                                                const ShareDone& progress) {
  const Index layers = static_cast<Index>(decoder.layers().size());
  check(layers == focus.shape().num_layers, "groups: {} layers for a decoder of {}",
        focus.shape().num_layers, layers);
  const Index heads = focus.grouping().heads();
  std::vector<GroupAssignments> groupings;
  for (Index i = 0; i < layers * heads; ++i)
    groupings.push_back({.layer = i / heads,
                         .head = i % heads,
                         .groups = focus.config().num_groups,
                         .group_of_token = {},
                         .confidence = {}});
  std::vector<AttentionMechanism> own;
  for (const Block& block : decoder.layers()) own.push_back(block.self_attn.mechanism);
  const NoGrad guard;
  const AttachedMechanism watched(decoder, [&](const MechanismInputs& in) {
    const GroupShares shares =
        focus.grouping().shares(in, *focus.runnable_mode(focus.mode).balance);
    for (Index head = 0; head < heads; ++head)
      note(shares, head, groupings[static_cast<std::size_t>(in.layer * heads + head)]);
    const AttentionMechanism& attend = own[static_cast<std::size_t>(in.layer)];
    return attend ? attend(in) : attention(in.q, in.k, in.v, in.options);
  });
  for (Index w = 0; w < text.num_windows(); ++w) {
    const Variable hidden = decoder.hidden_states(text.window(w), 1);
    require_finite(hidden.value().span(), "groups", "hidden states");
    if (progress) progress(static_cast<double>(w + 1) / static_cast<double>(text.num_windows()));
  }
  for (GroupAssignments& grouping : groupings)
    grouping.entropy /= std::max(1.0, static_cast<double>(grouping.tokens()));
  return groupings;
}

}  // namespace focus
