#include "focus/method/documents.h"

#include "autograd/base/random.h"

namespace focus {

std::vector<Index> sequence_starts(Index batch, Index seq_len, std::span<const Index> documents) {
  std::vector<Index> starts(documents.begin(), documents.end());
  for (Index s = 0; documents.empty() && s <= batch; ++s) starts.push_back(s * seq_len);
  return starts;
}

std::vector<Index> sequence_starts(const MechanismInputs& in) {
  return sequence_starts(in.h.dim(0), in.h.dim(1), documents_of(in.options));
}

std::span<const Index> documents_of(const AttentionOptions& options) {
  if (!options.documents) return {};
  return *options.documents;
}

Variable by_document(const MechanismInputs& in, const DocumentAttention& attend) {
  if (!in.options.documents) return attend(in, 0, in.h.dim(0) * in.h.dim(1));
  const std::vector<Index>& starts = *in.options.documents;
  std::vector<Variable> parts;
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    const Index begin = starts[i], end = starts[i + 1];
    const Variable h = slice(in.h, begin, end), q = slice(in.q, begin, end);
    const Variable k = slice(in.k, begin, end), v = slice(in.v, begin, end);
    AttentionOptions options = in.options;
    options.documents = nullptr;
    // Each document drops other weights.
    if (options.dropout > 0) options.dropout_key = Rng(options.dropout_key + i).next();
    parts.push_back(attend({h, q, k, v, options, in.layer, in.first_position}, begin, end));
  }
  return concatenate(parts);
}

}  // namespace focus
