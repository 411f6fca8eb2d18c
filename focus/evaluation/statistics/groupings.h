#pragma once

#include "focus/evaluation/evaluation.h"

// The groups of the tokens of some texts.
namespace focus {

/// Documents' tokens, one after the other, cut into windows that a model can run.
struct TextWindows {
  std::vector<std::int32_t> ids;
  std::vector<Index> windows = {0};  // the first token of each, and the end
  std::vector<std::string> names;    // of the documents

  Index tokens() const { return static_cast<Index>(ids.size()); }
  Index num_windows() const { return static_cast<Index>(windows.size()) - 1; }
  std::span<const std::int32_t> window(Index w) const {
    const Index first = windows[static_cast<std::size_t>(w)];
    return std::span(ids).subspan(
        static_cast<std::size_t>(first),
        static_cast<std::size_t>(windows[static_cast<std::size_t>(w) + 1] - first));
  }
};
/// Windows of `context` tokens, what the text has before each window among them; the last one of a
/// text is what is left, and none crosses texts. Throws std::invalid_argument where a window has no
/// room for a token.
TextWindows cut_windows(std::span<const EvalText> texts, Index context);

/// One grouping of all tokens: a layer's, or where keys are grouped that of one key head in it.
struct GroupAssignments {
  Index layer = 0, head = 0;
  Index groups = 0;
  std::vector<std::uint8_t> group_of_token;
  std::vector<float> confidence;  // [tokens]: the share of the token in its group
  double entropy = 0;             // of the shares, mean over tokens, in nats

  Index tokens() const { return static_cast<Index>(group_of_token.size()); }
};

/// Runs the decoder over the windows, with whatever attention it has, and notes for each layer the
/// groups of `focus`, which need not be attached: groups of tokens with the balance of focus.mode,
/// a token's shares g; groups of keys with softmax(z / tau) as shares. The groupings of a layer
/// follow each other head by head. The same for any number of threads. Throws std::invalid_argument
/// where the layers do not fit.
std::vector<GroupAssignments> collect_groupings(Decoder& decoder, FocusModel& focus,
                                                const TextWindows& text,
                                                const ShareDone& progress = {});

}  // namespace focus
