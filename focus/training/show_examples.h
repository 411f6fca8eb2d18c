#pragma once

#include <string>

#include "data/tokenizers/tokenizer.h"
#include "focus/training/session.h"

namespace focus {

/// The first `count` windows that a run trains on, for a person: their tokens, with a line for each
/// run of them that the loss is of, or is not, and where the next document begins; then how many
/// windows and tokens there are. `colour`: what is learned in green, the rest dim.
std::string shown_examples(const TrainingData& data, const Tokenizer& tokenizer, Index count,
                           bool colour);

}  // namespace focus
