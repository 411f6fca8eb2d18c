#pragma once

#include <cstdint>
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
  ModelShape model;
  Index vocab_size, context;
};
/// "gpt2" (124M) or "llama-15m". Throws std::runtime_error, which lists them.
const NamedShape& find_shape(const std::string& name);

struct PhaseTime {
  std::string_view name;
  double forward = 0, backward = 0, update = 0;  // seconds
  double total() const { return forward + backward + update; }
};
/// A profile's entries by phase.
std::vector<PhaseTime> phases_of(const std::vector<Profile::Entry>& entries);

struct StepSpeed {
  std::vector<double> seconds;
  double fastest = 0, median = 0;
  std::uint64_t multiply_adds = 0;         // of one step
  std::vector<Profile::Entry> of_fastest;  // its profile
};
/// Times `repeats` steps after a warm-up step. `report`, if given, is called with each step (0: the
/// warm-up) and its seconds.
StepSpeed time_steps(Session& session, int repeats,
                     const std::function<void(int step, double seconds)>& report = {});

/// A measurement and its session.
struct MeasuredSteps {
  Session& session;
  StepSpeed speed;
  std::string shape;  // of find_shape(), or empty
  double peak_gflops = 0;
  AttentionSpec mode = session.mode_at(static_cast<std::int64_t>(speed.seconds.size()));
  std::vector<PhaseTime> phases = phases_of(speed.of_fastest);

  const ModelConfig& model() const { return session.model().decoder->config(); }
  double tokens() const { return static_cast<double>(session.config().tokens_per_step()); }
  double gflops() const {
    return 2 * static_cast<double>(speed.multiply_adds) / speed.fastest / 1e9;
  }
};
nlohmann::ordered_json to_json(const MeasuredSteps& measured);

}  // namespace focus
