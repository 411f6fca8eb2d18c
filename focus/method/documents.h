#pragma once

#include <functional>
#include <span>
#include <vector>

#include "layers/decoder.h"

namespace focus {

/// The first tokens of the sequences of [batch, seq_len], and the end: of the rows, or, where
/// `documents` are given, of the documents of one row.
std::vector<Index> sequence_starts(Index batch, Index seq_len,
                                   std::span<const Index> documents = {});
std::vector<Index> sequence_starts(const MechanismInputs& in);
/// Those of AttentionOptions; empty where each row is one sequence.
std::span<const Index> documents_of(const AttentionOptions& options);

/// One document of a row: its inputs as a row of their own, and which tokens of the row they are.
using DocumentAttention =
    std::function<Variable(const MechanismInputs& in, Index begin, Index end)>;

/// What `attend` makes of each document of a row as if it were alone, one behind the other; of rows
/// that are one document each, what it makes of them all.
Variable by_document(const MechanismInputs& in, const DocumentAttention& attend);

}  // namespace focus
