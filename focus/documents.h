#pragma once

#include <functional>
#include <vector>

#include "layers/decoder.h"

namespace focus {

/// The first tokens of the sequences of [batch, seq_len], rows or the documents of one row, and the
/// end.
std::vector<Index> sequence_starts(const MechanismInputs& in);

/// One document of a row: its inputs as a row of their own, and which tokens of the row they are.
using DocumentAttention =
    std::function<Variable(const MechanismInputs& in, Index begin, Index end)>;

/// What `attend` makes of each document of a row as if it were alone, one behind the other; of rows
/// that are one document each, what it makes of them all.
Variable by_document(const MechanismInputs& in, const DocumentAttention& attend);

}  // namespace focus
