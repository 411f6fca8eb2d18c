#pragma once

#include <set>
#include <span>
#include <string>

#include "data/files/checksum.h"
#include "focus/models/model_files.h"

// A model's fingerprint: XXH3-128 over the settings of its forward pass and its float32 weights. It
// is the same for a folder and for the checkpoint file imported from it, in every precision.
namespace focus {

/// The results of reading a model's weights once.
struct ReadModel {
  std::string fingerprint;
  Index parameters = 0;
  std::set<std::string> types;  // as stored: "bf16"; of stream_model() none
  Nonfinite nonfinite;
};

/// Collects them parameter by parameter.
class ModelReading {
 public:
  explicit ModelReading(const ModelConfig& config);
  /// Verifies what `source` has of the parameter against its checksum.
  void begin(const StoredParameter& p, const TensorSource& source);
  /// The parameter's next numbers.
  void take(std::span<const Real> numbers);
  ReadModel finish();

 private:
  Checksum checksum_;
  ReadModel model_;
  std::string published_, verified_;
};

/// Reads all weights and verifies the file's checksums.
ReadModel read_model(const ModelFiles& files);

/// Calls `f` with every tensor under its published name, rounded to `dtype`, of which the
/// fingerprint is. Memory holds the largest tensor at most.
ReadModel stream_model(const ModelFiles& files, Dtype dtype, const PublishedFunction& f);

/// The fingerprint that a checkpoint file states, or the one noted for a folder whose files have
/// the same sizes and times as then; otherwise reads all weights.
std::string fingerprint_of(const ModelFiles& files);
/// The fingerprint of weights in memory.
std::string model_fingerprint(Decoder& decoder);

}  // namespace focus
