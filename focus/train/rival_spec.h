#pragma once

#include <string>
#include <variant>

#include "focus/rivals/rival_model.h"

namespace focus {

/// The default settings of a kind: "window", "performer", "routing_transformer" (or "routing"),
/// "sparq", "magicpig". Throws one line that starts with `where` and names them all.
RivalConfig rival_of_kind(const std::string& kind, const std::string& where);

/// A rival as a word: its kind, then settings behind colons, KEY=VALUE or the value of its first
/// key alone. "window:128", "sparq:32:rank=16:reallocate=false". Throws one line that starts with
/// `where`.
RivalConfig parse_rival(const std::string& word, const std::string& where);

/// Words of --attention that are no rival.
struct DenseWord {};
struct LocalWord {};    // Focus's local window alone
struct SoftWord {};     // Focus, every pair
struct FocusWord {};    // soft, and hard for every k
struct TrainedWord {};  // the rival that the model was trained with
struct HardWord {
  int top_k = 1;
};
using AttentionWord =
    std::variant<DenseWord, LocalWord, SoftWord, HardWord, FocusWord, TrainedWord, RivalConfig>;

/// One row or several of an evaluation: "dense", "local", "soft", "hard:2", "focus", "trained", or
/// a rival as parse_rival() reads it. Throws one line that starts with `where`.
AttentionWord parse_attention(const std::string& word, const std::string& where);

}  // namespace focus
