// Puts Focus onto a model of transformers, trains it for 50 steps, and prints what dense, soft and
// hard attention make of a text:
//   retrofit MODEL_FOLDER TRAIN.txt UNSEEN.txt
#include <fmt/format.h>
#include <focus/all.h>

int main(int argc, char** argv) try {
  if (argc != 4) throw std::runtime_error("wanted: retrofit MODEL_FOLDER TRAIN.txt UNSEEN.txt");

  focus::RunConfig config;  // what a config of `focus train` says; the rest are its defaults
  config.base = argv[1];
  config.data.train = {argv[2]};
  config.data.document_separator = "<|endoftext|>";
  config.data.context = 128;
  config.steps = 50;
  config.optim.warmup_steps = 5;
  config.focus.local_window = 16;  // narrow, so that a short text has distant pairs

  focus::Session session = focus::open_session(config);
  focus::TrainingCallbacks callbacks;
  callbacks.on_line = [](const focus::Session&, const focus::TrainingLine& line) {
    fmt::print("step {:>3}  loss {:.3f}\n", line.report.step, line.report.result.loss);
  };
  focus::run_training(session, callbacks);

  focus::LoadedModel& model = session.model();
  const focus::Texts text = {.files = {argv[3]}};
  for (const std::string word : {"dense", "soft", "hard:2"}) {
    const focus::Row row = focus::evaluate(model, word, text, {.context = config.data.context});
    fmt::print("{:<8} perplexity {:.3f}, {:.0f}% of the pairs\n", word, row.perplexity,
               100 * row.pairs_attended);
  }
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
