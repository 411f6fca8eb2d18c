#include "focus/speed/step_speed.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/base/clock.h"
#include "autograd/base/memory.h"
#include "autograd/gemm/gemm.h"
#include "autograd/machine.h"

namespace focus {
namespace {

const std::array<NamedShape, 2>& named_shapes() {
  static const std::array<NamedShape, 2> shapes = {{
      {"gpt2",  // GPT-2 124M
       {.model_type = "gpt2",
        .hidden_size = 768,
        .num_hidden_layers = 12,
        .num_attention_heads = 12},
       50257,
       1024},
      {"llama-15m",  // Llama form, 15M
       {.model_type = "llama",
        .hidden_size = 288,
        .intermediate_size = 768,
        .num_hidden_layers = 6,
        .num_attention_heads = 6},
       32000,
       256},
  }};
  return shapes;
}

}  // namespace

const NamedShape& find_shape(const std::string& name) {
  std::string known;
  for (const NamedShape& shape : named_shapes()) {
    if (shape.name == name) return shape;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", shape.name);
  }
  fail("--shape {}: unknown shape; give one of {}, or leave it out and give model.* keys", name,
       known);
}

std::vector<PhaseTime> phases_of(const std::vector<Profile::Entry>& entries) {
  struct Phase {
    std::string_view name;
    std::vector<std::string_view> marks;
  };
  static const std::array<Phase, 7> kPhases = {{
      {"embedding", {"embedding"}},
      {"attention",
       {"attention", "gated_attention", "sparse_attention", "sort", "grouped attention",
        "local band", "summary_attention", "sums", "local and summary tokens", "selected groups"}},
      {"routing", {"route", "membership", "potentials", "class_scores", "classes"}},
      {"linear", {"linear", "matmul"}},
      {"loss", {"linear_cross_entropy"}},
      {"optimiser", {"optimiser"}},
      {"element-wise, norms", {}},  // everything else
  }};
  constexpr std::string_view kBackward = " backward";
  std::vector<PhaseTime> times;
  times.reserve(kPhases.size());
  for (const Phase& phase : kPhases) times.push_back({.name = phase.name});
  for (const Profile::Entry& entry : entries) {
    std::string_view mark = entry.name;
    const bool backward = mark.ends_with(kBackward);
    if (backward) mark.remove_suffix(kBackward.size());
    const auto phase = std::ranges::find_if(kPhases, [&](const Phase& p) {
      return p.marks.empty() || std::ranges::find(p.marks, mark) != p.marks.end();
    });
    PhaseTime& time = times[static_cast<std::size_t>(phase - kPhases.begin())];
    (mark == "optimiser" ? time.update : backward ? time.backward : time.forward) += entry.seconds;
  }
  return times;
}

StepSpeed time_steps(Session& session, int repeats,
                     const std::function<void(int step, double seconds)>& report) {
  StepSpeed speed;
  const auto timed_step = [&](int step) {
    const double start = now();
    session.step();
    const double seconds = now() - start;
    if (report) report(step, seconds);
    return seconds;
  };
  timed_step(0);  // fills the pool of buffers
  for (int i = 1; i <= repeats; ++i) {
    const std::uint64_t before = multiply_adds();
    const Profile profile;
    speed.seconds.push_back(timed_step(i));
    speed.multiply_adds = multiply_adds() - before;
    if (i == 1 || speed.seconds.back() < speed.fastest) {
      speed.fastest = speed.seconds.back();
      speed.of_fastest = profile.entries();
    }
  }
  speed.median = median(speed.seconds);
  return speed;
}

nlohmann::ordered_json to_json(const MeasuredSteps& m) {
  using Json = nlohmann::ordered_json;
  const RunConfig& config = m.session.config();
  Json phases = Json::array(), marks = Json::array();
  for (const PhaseTime& phase : m.phases)
    phases.push_back({{"phase", phase.name},
                      {"forward_seconds", phase.forward},
                      {"backward_seconds", phase.backward},
                      {"update_seconds", phase.update}});
  for (const Profile::Entry& entry : m.speed.of_fastest)
    marks.push_back({{"name", entry.name}, {"seconds", entry.seconds}, {"calls", entry.calls}});
  return {{"shape", m.shape},
          {"model", Json::parse(write_model_config(m.model()))},
          {"parameters", m.session.count_all()},
          {"trained", m.session.count_trainable()},
          {"method", value_text(config.method)},
          {"attention", m.mode.name()},
          {"balance", value_text(m.mode.balance.value_or(Balance::carried))},
          {"batch", config.data.batch},
          {"gradient_accumulation_steps", config.data.gradient_accumulation_steps},
          {"context", config.data.context},
          {"seconds", m.speed.seconds},
          {"seconds_min", m.speed.fastest},
          {"seconds_median", m.speed.median},
          {"tokens_per_second", m.tokens() / m.speed.fastest},
          {"tokens_per_second_median", m.tokens() / m.speed.median},
          {"multiply_adds", m.speed.multiply_adds},
          {"gflops", m.gflops()},
          {"peak_gflops", m.peak_gflops},
          {"share_of_peak", m.gflops() / m.peak_gflops},
          {"peak_resident_bytes", peak_resident_bytes()},
          {"peak_tensor_bytes", pool_stats().peak},
          {"phases", phases},
          {"marks", marks}};
}

}  // namespace focus
