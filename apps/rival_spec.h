#pragma once

#include <string>

#include "focus/rivals/rival_model.h"

namespace focus {

/// The default settings of a kind: "window", "performer", "routing_transformer" (or "routing"),
/// "sparq", "magicpig". Throws one line that starts with `where` and names them all.
RivalConfig rival_of_kind(const std::string& kind, const std::string& where);

/// A rival as a word: its kind, then settings behind colons, KEY=VALUE or the value of its first
/// key alone. "window:128", "sparq:32:rank=16:reallocate=false". Throws one line that starts with
/// `where`.
RivalConfig parse_rival(const std::string& word, const std::string& where);

}  // namespace focus
