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

constexpr std::array<NamedShape, 2> kShapes = {{
    {"gpt2",
     "model: {model_type: gpt2, hidden_size: 768, num_hidden_layers: 12, num_attention_heads: 12}\n"
     "data: {context: 1024}",
     50257},
    {"llama-15m",
     "model: {model_type: llama, hidden_size: 288, intermediate_size: 768, num_hidden_layers: 6, "
     "num_attention_heads: 6}\ndata: {context: 256}",
     32000},
}};

}  // namespace

const NamedShape& find_shape(const std::string& name) {
  const auto found = std::ranges::find(kShapes, name, &NamedShape::name);
  if (found == kShapes.end())
    fail("--shape {}: unknown shape; give one of {}, {}, or leave it out and give model.* keys",
         name, kShapes[0].name, kShapes[1].name);
  return *found;
}

std::vector<PhaseTime> MeasuredSteps::phases() const {
  struct Phase {
    std::string_view name;
    std::vector<std::string_view> marks;
  };
  static const std::array<Phase, 7> kPhases = {{
      {"embedding", {"embedding"}},
      {"attention",
       {"attention", "gated_attention", "sparse_attention", "sort", "grouped attention",
        "local band", "merge", "summary_attention", "sums", "local and summary tokens",
        "selected groups", "local tiles", "summary tokens"}},
      {"routing", {"route", "membership", "potentials", "groups"}},
      {"linear", {"linear", "matmul"}},
      {"loss", {"linear_cross_entropy"}},
      {"optimiser", {"optimiser"}},
      {"element-wise, norms", {}},  // everything else
  }};
  constexpr std::string_view kBackward = " backward";
  std::vector<PhaseTime> times;
  for (const Phase& phase : kPhases) times.push_back({.name = phase.name});
  for (const Profile::Entry& entry : marks) {
    std::string_view mark = entry.name;
    const bool backward = mark.ends_with(kBackward);
    if (backward) mark.remove_suffix(kBackward.size());
    if (mark.ends_with(',')) mark.remove_suffix(1);
    const auto phase = std::ranges::find_if(kPhases, [&](const Phase& p) {
      return p.marks.empty() || std::ranges::find(p.marks, mark) != p.marks.end();
    });
    PhaseTime& time = times[static_cast<std::size_t>(phase - kPhases.begin())];
    (mark == "optimiser" ? time.update : backward ? time.backward : time.forward) += entry.seconds;
  }
  return times;
}

void time_steps(MeasuredSteps& measured, int repeats,
                const std::function<void(int step, double seconds)>& report) {
  for (int step = 0; step <= repeats; ++step) {  // the first fills the pool of buffers
    const std::uint64_t before = multiply_adds();
    const Profile profile;
    const double start = now();
    measured.session.step();
    const double seconds = now() - start;
    report(step, seconds);
    if (step == 0) continue;
    measured.multiply_adds = multiply_adds() - before;
    measured.seconds.push_back(seconds);
    if (seconds == measured.fastest()) measured.marks = profile.entries();
  }
}

nlohmann::ordered_json to_json(const MeasuredSteps& m) {
  using Json = nlohmann::ordered_json;
  const RunConfig& config = m.session.config();
  const AttentionSpec mode = m.mode();
  Json phases = Json::array(), marks = Json::array();
  for (const PhaseTime& phase : m.phases())
    phases.push_back({{"phase", phase.name},
                      {"forward_seconds", phase.forward},
                      {"backward_seconds", phase.backward},
                      {"update_seconds", phase.update}});
  for (const Profile::Entry& entry : m.marks)
    marks.push_back({{"name", entry.name}, {"seconds", entry.seconds}, {"calls", entry.calls}});
  return {{"shape", m.shape},
          {"model", Json::parse(write_model_config(m.model()))},
          {"parameters", m.session.count_all()},
          {"trained", m.session.count_trainable()},
          {"method", value_text(config.method)},
          {"attention", mode.name()},
          {"balance", value_text(mode.balance.value_or(Balance::carried))},
          {"batch", config.data.batch},
          {"gradient_accumulation_steps", config.data.gradient_accumulation_steps},
          {"context", config.data.context},
          {"seconds", m.seconds},
          {"seconds_min", m.fastest()},
          {"seconds_median", median(m.seconds)},
          {"tokens_per_second", m.tokens() / m.fastest()},
          {"tokens_per_second_median", m.tokens() / median(m.seconds)},
          {"multiply_adds", m.multiply_adds},
          {"gflops", m.gflops()},
          {"peak_gflops", m.peak_gflops},
          {"share_of_peak", m.gflops() / m.peak_gflops},
          {"peak_resident_bytes", peak_resident_bytes()},
          {"peak_tensor_bytes", pool_stats().peak},
          {"phases", phases},
          {"marks", marks}};
}

}  // namespace focus
