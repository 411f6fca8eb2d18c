#pragma once

#include <algorithm>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/base/profile.h"
#include "focus/training/session.h"

// The cost of a training step.
namespace focus {

/// The shape of a published model, for timing with random weights.
struct NamedShape {
  std::string_view name;
  const char* config;  // YAML of a RunConfig
  Index vocab_size;
};
/// "gpt2" (124M) or "llama-15m". Throws std::runtime_error, which lists them.
const NamedShape& find_shape(const std::string& name);

struct PhaseTime {
  std::string_view name;
  double forward = 0, backward = 0, update = 0;  // seconds
  double total() const { return forward + backward + update; }
};

/// Timed steps, their session, and the best speed that it could have.
struct MeasuredSteps {
  Session& session;
  std::string shape;  // of find_shape(), or empty
  double peak_gflops = 0;
  std::vector<double> seconds = {};
  std::uint64_t multiply_adds = 0;         // of one step
  std::vector<Profile::Entry> marks = {};  // of the fastest step

  AttentionSpec mode() const { return session.mode_at(std::ssize(seconds)); }
  const ModelConfig& model() const { return session.model().decoder->config(); }
  double tokens() const { return static_cast<double>(session.config().tokens_per_step()); }
  double fastest() const { return *std::ranges::min_element(seconds); }
  double gflops() const { return 2 * static_cast<double>(multiply_adds) / fastest() / 1e9; }
  /// The marks by phase.
  std::vector<PhaseTime> phases() const;
};
/// Times `repeats` steps after a warm-up step. `report` is called with each step (0: the warm-up)
/// and its seconds.
void time_steps(MeasuredSteps& measured, int repeats,
                const std::function<void(int step, double seconds)>& report);
nlohmann::ordered_json to_json(const MeasuredSteps& measured);

}  // namespace focus
