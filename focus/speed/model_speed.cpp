#include <omp.h>

#include <array>
#include <atomic>
#include <nlohmann/json.hpp>

#include "autograd/base/check.h"
#include "autograd/base/memory.h"
#include "autograd/base/parallel.h"
#include "autograd/gemm/gemm.h"
#include "autograd/machine.h"
#include "focus/generation/generator.h"
#include "focus/speed/speed.h"
#include "layers/module.h"

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

/// Bytes of the matrices that a token is multiplied with; of an embedding it reads only a row.
std::size_t multiplied_bytes(LoadedModel& model) {
  std::size_t bytes = model.decoder->head_weight().bytes();
  for (Block& block : model.decoder->layers())
    for_each_parameter(block, [&](const std::string&, const Weight& p) { bytes += p.bytes(); });
  return bytes;
}

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
    PhaseTime& time = times[phase - kPhases.begin()];
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

DecodeSpeed measure_decoding(LoadedModel& model, const AttentionSpec& spec,
                             const std::vector<std::int32_t>& ids, Index context,
                             CacheDtype cache) {
  const ActiveAttention active(model, spec);
  Generator generator(*model.decoder, model.focus(), active.mode(), cache);
  const auto held = static_cast<std::size_t>(context);
  generator.next_logits(std::span(ids).first(held));
  std::vector<double> seconds;
  for (std::size_t t = held; t < ids.size(); ++t) {
    const double start = now();
    generator.next_logits(std::span(ids).subspan(t, 1));
    seconds.push_back(now() - start);
  }
  return {.context = context,
          .decoded_tokens = static_cast<Index>(seconds.size()),
          .attention = active.title(),
          .tokens_per_second = 1 / median(seconds),
          .keys_read = generator.cache().share_read(),
          .weight_bytes = multiplied_bytes(model),
          .cache_bytes = generator.cache().bytes()};
}

double read_bandwidth(std::size_t bytes) {
  constexpr int kRounds = 5;
  constexpr Index kLine = 64 / sizeof(std::uint64_t);
  const std::vector<std::uint64_t> memory(bytes / sizeof(std::uint64_t), 1);
  const Index lines = static_cast<Index>(memory.size()) / kLine;
  const Index part = (lines + omp_get_max_threads() - 1) / omp_get_max_threads();
  std::uint64_t sum = 0;
  double fastest = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<std::uint64_t> total = 0;
    const double start = now();
    parallel_chunks(lines, part, [&](Index begin, Index end) {
      // A number of each line brings all of it; two places at once keep more lines on their way.
      const Index half = (end - begin) / 2;
      const std::uint64_t* first = memory.data() + begin * kLine;
      std::uint64_t both = 0;
      for (Index i = 0; i < half * kLine; i += kLine) both += first[i] + first[half * kLine + i];
      total += both;
    });
    const double seconds = now() - start;
    sum += total;
    if (round > 0) fastest = std::max(fastest, static_cast<double>(bytes) / seconds);
  }
  // The sum is used, so that it is computed.
  return sum > 0 ? fastest : 0;
}

}  // namespace focus
