// An attention mechanism of one's own, put onto a model of transformers and trained together with
// it: cosine attention, whose scores are the cosines of queries and keys (Henry et al. 2020,
// "QKNorm", with a fixed temperature).
//   new_mechanism MODEL_FOLDER TRAIN.txt
#include <fmt/format.h>
#include <focus/all.h>

class CosineAttention final : public focus::Mechanism {
 public:
  struct Settings {
    double sharpness = 8;  // what cosines are multiplied by

    template <class F>
    void visit(F&& f) {
      f("sharpness", sharpness, "what cosines are multiplied by");
    }
    void validate() const { focus::check(sharpness > 0, "sharpness must be positive"); }
  };

  CosineAttention(const Settings& settings, const focus::ModelConfig& shape)
      : Mechanism("cosine", settings, shape), sharpness_(settings.sharpness) {}

 private:
  /// What every layer computes in the place of its own attention. Whatever ops of
  /// focus/autograd/ops.h it uses, gradients follow.
  focus::Variable attend(const focus::MechanismInputs& in, focus::PairCounts* pairs) override {
    if (pairs != nullptr) *pairs += focus::all_pairs(in);
    const focus::Index width = in.q.dim(-1);
    const focus::Variable ones = focus::Tensor::full({width}, 1);
    focus::AttentionOptions options = in.options;
    options.scale = static_cast<focus::Real>(sharpness_ / static_cast<double>(width));
    // rms_norm makes rows of length sqrt(width): their product is the cosine times width.
    return focus::attention(focus::rms_norm(in.q, ones, 1e-6f), focus::rms_norm(in.k, ones, 1e-6f),
                            in.v, options);
  }

  double sharpness_;
};

int main(int argc, char** argv) try {
  focus::check(argc == 3, "wanted: new_mechanism MODEL_FOLDER TRAIN.txt");
  focus::RunConfig config;
  config.method = focus::Method::full;  // it has no parameters of its own: the model adapts to it
  config.base = argv[1];
  config.data.train = {argv[2]};
  config.data.document_separator = "<|endoftext|>";
  config.data.context = 128;
  config.steps = 50;
  config.optim.warmup_steps = 5;

  focus::LoadedModel model = focus::open_training_model(config);
  focus::TrainingData data = focus::open_training_data(config, model);
  model.attach(
      std::make_unique<CosineAttention>(CosineAttention::Settings{}, model.decoder->config()));
  focus::Session session(config, std::move(model), std::move(data));
  const focus::TrainingResult result = focus::run_training(session);
  focus::check(result.valid_loss.has_value(), "{} is too short to hold a part back", argv[2]);
  fmt::print("cosine attention: {:.3f} nats per token before, {:.3f} after {} steps\n",
             *result.validations.start, *result.valid_loss, result.step);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
