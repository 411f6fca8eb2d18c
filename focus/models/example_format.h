#pragma once

#include <string>

#include "data/tokens/tokenize.h"
#include "focus/models/model_files.h"

namespace focus {

/// How lines of JSONL become tokens of a model: texts as other texts do (LoadedModel::bos), behind
/// a completion the model's EOS, messages through its chat template or that of the settings, on a
/// day that stays the same where a template writes a date. A model without a template fails at the
/// first messages, with a line.
ExampleFormat example_format(const LoadedModel& model, const ExampleSettings& settings);

}  // namespace focus
