// Training that distils the base's dense attention into a model with groups and a LoRA, or into all
// of its weights: what the teacher is, what each loss is made of, and what is trained when.
#include <gtest/gtest.h>

#include <cmath>

#include "focus/training/fit.h"
#include "focus/training/session.h"
#include "tests/support/grouping_layers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_session.h"

namespace focus {
namespace {

struct Form {
  const char* name;
  bool keys;
  Training training;
};
constexpr Form kForms[] = {{"keys", true, Training::summary},
                           {"tokens, soft", false, Training::soft},
                           {"tokens, hard", false, Training::hard},
                           {"tokens, summary", false, Training::summary}};

RunConfig distils(Method method, const Form& form,
                  Objective objective = Objective::logit_distillation) {
  RunConfig config = keys_run(method);
  if (!form.keys) config.focus.grouping.name = "tokens";
  config.attention = {.name = "focus"};
  config.focus.training = form.training;
  config.focus.objective = objective;
  config.focus.tokens().sinks = 1;
  config.focus.tokens().train_top_k = 1;
  config.lora.r = 2;
  return config;
}

/// Every row's distribution of next tokens of a decoder as it is, in double.
std::vector<std::vector<double>> predictions(const Decoder& decoder, const Batch& batch) {
  const NoGrad guard;
  const Tensor logits = decoder.logits(decoder.hidden_states(batch.ids, batch.batch)).value();
  std::vector<std::vector<double>> rows(logits.rows());
  for (Index r = 0; r < logits.rows(); ++r) {
    double sum = 0;
    for (Index i = 0; i < logits.cols(); ++i) {
      rows[r].push_back(static_cast<double>(logits[r * logits.cols() + i]));
      sum += std::exp(rows[r].back());
    }
    for (double& logit : rows[r]) logit -= std::log(sum);
  }
  return rows;
}

/// Mean over rows of KL(p || q), written out.
double divergence(const std::vector<std::vector<double>>& p,
                  const std::vector<std::vector<double>>& q) {
  double sum = 0;
  for (std::size_t r = 0; r < p.size(); ++r)
    for (std::size_t i = 0; i < p[r].size(); ++i) sum += std::exp(p[r][i]) * (p[r][i] - q[r][i]);
  return sum / static_cast<double>(p.size());
}

/// The LoRA's B, which begins at 0, as if it had been trained.
void fill_lora(Session& session) {
  Rng rng(17);
  session.model().lora()->visit_parameters([&](const std::string& name, Variable& p) {
    if (name.find(".b") != std::string::npos || name.find("lora_B") != std::string::npos)
      for (Real& x : p.mutable_value().span()) x = static_cast<Real>(rng.normal() * 0.1);
  });
}

TEST(Distillation, ALoraOfZerosHasTheLossesOfTheGroupsAlone) {
  for (const Form& form : kForms)
    for (const Objective objective : {Objective::logit_distillation, Objective::lm}) {
      Session with = tiny_session(distils(Method::lora, form, objective));
      Session without = tiny_session(distils(Method::retrofit, form, objective));
      EXPECT_EQ(with.step().result.loss, without.step().result.loss) << form.name;
    }
}

TEST(Distillation, TheTeacherIsTheBaseWithoutTheLora) {
  // Where every group is read the student is the model with the LoRA, densely.
  RunConfig config = distils(Method::lora, kForms[0]);
  config.focus.summary.num_selected_groups = config.focus.num_groups;
  Session session = tiny_session(config);
  fill_lora(session);
  Batches batches = tiny_batches(config.data.context, config.data.batch, 5);
  const Batch batch = batches.next();
  LoadedModel base = tiny_loaded();
  std::vector<std::vector<double>> student;
  {
    const AttachedMechanism dense(*session.model().decoder, AttentionMechanism{});
    student = predictions(*session.model().decoder, batch);
  }
  const double expected = divergence(predictions(*base.decoder, batch), student);
  EXPECT_GT(expected, 1e-4);
  EXPECT_NEAR(session.step().result.loss, expected, 1e-5 + 1e-3 * expected);
}

TEST(Distillation, WhereTheBaseIsTrainedTheTeacherStaysWhatItWas) {
  RunConfig config = distils(Method::full, kForms[0]);
  config.focus.summary.num_selected_groups = config.focus.num_groups;
  config.focus.lm_weight = 1;  // or there would be nothing to learn
  Session session = tiny_session(config);
  Batches batches = tiny_batches(config.data.context, config.data.batch, 5);
  LoadedModel base = tiny_loaded();
  for (int i = 0; i < 3; ++i) {
    const Batch batch = batches.next();
    const AttachedMechanism dense(*session.model().decoder, AttentionMechanism{});
    const auto student = predictions(*session.model().decoder, batch);
    const double cross_entropy =
        static_cast<double>(batch_loss(*session.model().decoder, batch).value()[0]);
    const double expected = divergence(predictions(*base.decoder, batch), student) + cross_entropy;
    EXPECT_GT(expected, i == 0 ? cross_entropy - 1e-6 : cross_entropy + 1e-4);
    EXPECT_NEAR(session.step().result.loss, expected, 1e-4 * expected) << i;
  }
}

TEST(Distillation, TheTextsLossIsAddedByItsWeight) {
  for (const Form& form : kForms) {
    const auto loss = [&](Objective objective, double weight) {
      RunConfig config = distils(Method::lora, form, objective);
      config.focus.lm_weight = weight;
      return tiny_session(config).step().result.loss;
    };
    const double kl = loss(Objective::logit_distillation, 0), lm = loss(Objective::lm, 0);
    EXPECT_NEAR(loss(Objective::logit_distillation, 0.5), kl + 0.5 * lm, 1e-5 * lm) << form.name;
  }
}

TEST(Distillation, EveryFormLowersItsLossAndChangesWhatIsTrained) {
  for (const Method method : {Method::lora, Method::full})
    for (const Form& form : kForms)
      for (const Objective objective :
           {Objective::logit_distillation, Objective::layer_distillation}) {
        RunConfig config = distils(method, form, objective);
        config.steps = 40;
        config.optim.lr = method == Method::lora ? 0.01 : 0.001;
        config.focus.tokens().sequence_steps = 0;
        Session session = tiny_session(config);
        session.validate();
        const auto before = parameters_of(session);
        std::vector<double> epochs(2);  // of 20 steps, each of the same text
        for (int i = 0; i < 40; ++i) epochs[i / 20] += session.step().result.loss / 20;
        const auto after = parameters_of(session);
        const std::string what = fmt::format("{} {} {}", form.name, value_text(objective),
                                             method == Method::lora ? "lora" : "full");
        EXPECT_GT(epochs[1], 0) << what;
        EXPECT_LT(epochs[1], epochs[0]) << what;
        EXPECT_EQ(changed(before, after, "model.").empty(), method == Method::lora) << what;
        EXPECT_FALSE(changed(before, after, "focus.").empty()) << what;
        EXPECT_EQ(changed(before, after, "lora.").empty(), method != Method::lora) << what;
      }
}

TEST(Distillation, LayersOfALoraAreHeldAgainstTheTeachersOwn) {
  RunConfig config = distils(Method::lora, kForms[0], Objective::layer_distillation);
  config.focus.summary.num_selected_groups = config.focus.num_groups;
  EXPECT_NEAR(tiny_session(config).step().result.loss, 0, 1e-9);  // B = 0: the same numbers
  Session session = tiny_session(config);
  fill_lora(session);
  // Written out: what attention adds in each layer, with the LoRA and without.
  const Batch batch = tiny_batches(config.data.context, config.data.batch, 5).next();
  const auto outputs = [&](Decoder& decoder) {
    const NoGrad guard;
    std::vector<Tensor> of_layers;
    const AttachedMechanism recording(decoder, [&](const MechanismInputs& in) {
      Variable out = attention(in.q, in.k, in.v, in.options);
      const Linear& o_proj = decoder.layers()[in.layer].self_attn.o_proj;
      const Shape rows = {in.q.dim(0), in.q.dim(1), in.q.dim(2) * in.q.dim(3)};
      Variable projected = o_proj(reshape(out, rows));
      of_layers.push_back(projected.value());
      return out;
    });
    decoder.hidden_states(batch.ids, batch.batch);
    return of_layers;
  };
  LoadedModel base = tiny_loaded();
  const auto expected = outputs(*base.decoder), found = outputs(*session.model().decoder);
  double sum = 0;
  for (std::size_t layer = 0; layer < expected.size(); ++layer) {
    const Variable& bias = base.decoder->layers()[layer].self_attn.o_proj.bias;
    double error = 0, square = 0;
    for (Index i = 0; i < expected[layer].size(); ++i) {
      const double b =
          bias.defined() ? static_cast<double>(bias.value()[i % bias.value().size()]) : 0;
      const auto e = static_cast<double>(expected[layer][i]);
      const auto f = static_cast<double>(found[layer][i]);
      error += (f - e) * (f - e);
      square += (e - b) * (e - b);
    }
    sum += error / square;
  }
  EXPECT_GT(sum, 1e-4);
  EXPECT_NEAR(session.step().result.loss, sum, 1e-4 * sum);
}

TEST(Distillation, CentroidsFirstThenBoth) {
  RunConfig config = distils(Method::two_phase, kForms[0]);
  config.two_phase.method = SecondPhase::lora;
  RunConfig alone = distils(Method::retrofit, kForms[0]);
  alone.steps = config.two_phase.phase1_steps;
  Session session = tiny_session(config), retrofit = tiny_session(alone);
  const auto start = parameters_of(session);
  for (int i = 0; i < config.two_phase.phase1_steps; ++i)
    EXPECT_EQ(session.step().result.loss, retrofit.step().result.loss) << i;
  const auto middle = parameters_of(session);
  EXPECT_TRUE(changed(parameters_of(retrofit), middle, "focus.").empty());
  EXPECT_TRUE(changed(start, middle, "lora.").empty());
  while (!session.finished()) session.step();
  const auto end = parameters_of(session);
  EXPECT_FALSE(changed(middle, end, "focus.").empty());
  EXPECT_FALSE(changed(middle, end, "lora.").empty());
  EXPECT_TRUE(changed(start, end, "model.").empty());
  EXPECT_FALSE(session.config().trains_base());
}

TEST(Distillation, SettingsThatDoNotFitAreRefusedByName) {
  const auto says = [](RunConfig config, const std::string& part) {
    const std::string said = error_of([&] { config.validate_step(); });
    EXPECT_NE(said.find(part), std::string::npos) << "no \"" << part << "\" in \"" << said << "\"";
  };
  for (const Objective objective : {Objective::logit_distillation, Objective::layer_distillation})
    says(distils(Method::scratch, kForms[0], objective), "scratch has none");
  RunConfig weighed = distils(Method::lora, kForms[0], Objective::lm);
  weighed.focus.lm_weight = 0.5;
  says(weighed, "focus.lm_weight is 0.5, but focus.objective lm");
  weighed = distils(Method::retrofit, kForms[0], Objective::layer_distillation);
  weighed.focus.lm_weight = 0.5;
  says(weighed, "in a retrofit layer_distillation leaves the predictions dense");
  weighed.method = Method::lora;
  EXPECT_NO_THROW(weighed.validate_step());
}

}  // namespace
}  // namespace focus
