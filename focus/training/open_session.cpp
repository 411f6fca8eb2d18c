#include <cmath>

#include "autograd/base/check.h"
#include "autograd/simd/bf16_kernels.h"
#include "data/files/checksum.h"
#include "data/files/notice.h"
#include "data/tokens/tokenize.h"
#include "focus/method/grouping/grouping.h"
#include "focus/training/session.h"
#include "layers/weights.h"

namespace focus {
namespace {

/// XXH3-128 of the token ids that a run trains on; where windows hold documents, of where these
/// begin and what the loss is of, too.
std::string tokens_fingerprint(const TokenView& tokens, bool by_document) {
  Checksum checksum;
  std::vector<std::int32_t> part(1 << 20);
  for (Index i = 0; i < tokens.size(); i += static_cast<Index>(part.size())) {
    part.resize(std::min<Index>(1 << 20, tokens.size() - i));
    tokens.copy(i, part);
    checksum.update(std::as_bytes(std::span(part)));
  }
  for (Index i = 0; by_document && i < tokens.num_documents(); ++i) {
    const TokenRange document = tokens.document(i);
    std::vector<std::uint8_t> counts(document.size());
    tokens.copy_counts(document.begin, counts);
    checksum.update(std::as_bytes(std::span(&document.begin, 1)));
    checksum.update(std::as_bytes(std::span(counts)));
  }
  return checksum.hex();
}

LoadedModel new_model(const RunConfig& config, Rng& rng) {
  LoadedModel model;
  model.where = "new model";
  model.tokenizer = open_tokenizer(config.tokenizer);
  ModelConfig shape =
      config.model.to_model_config(model.tokenizer->vocab_size(), config.data.context);
  if (const auto id = model.tokenizer->bos_id()) shape.bos_token_id = *id;
  if (const auto id = model.tokenizer->eos_id()) shape.eos_token_ids = {*id};
  model.decoder = std::make_unique<Decoder>(shape);
  initialise(*model.decoder, rng);
  return model;
}

/// Trained matrices use bf16 products only where they are faster.
void choose_products(const RunConfig& config, Decoder& decoder) {
  if (config.precision == Precision::float32) return;
  if (!config.trains_base())
    freeze_matrices(decoder, config.precision);
  else if (simd::fast_bf16_kernels() != nullptr)
    multiply_in_bf16(decoder);
}

/// Says where a run's products are no faster than it may think.
void say_products(const RunConfig& config) {
  if (config.precision == Precision::bf16 && simd::fast_bf16_kernels() == nullptr)
    notice(
        "precision: bf16: bf16 is not faster than float32 on this processor, so products are in "
        "float32{}; FOCUS_SIMD=always-bf16 in the environment rounds their operands anyway",
        config.trains_base() ? "" : ", with weights rounded to bf16");
}

/// Says where no step trains with the potentials that the result is used with.
void say_balance(const RunConfig& config) {
  const FocusConfig& focus = config.focus;
  const std::int64_t steps = config.phase_at(0).steps;
  if (!config.has_focus() || !grouping_kind(focus).is_routed || config.epochs > 0 ||
      config.method == Method::two_phase)
    return;
  const TokenSettings& tokens = focus.tokens();
  if (tokens.balance == Balance::carried && tokens.sequence_steps.value_or(0) >= steps)
    notice(
        "focus.tokens.sequence_steps {} is not below steps {}: no step trains with the carried "
        "potentials, with which the result is used; leave it out for four fifths of the steps",
        *tokens.sequence_steps, steps);
}

/// Gives the run's adapters the values of those that it starts from.
void start_from_adapters(const RunConfig& config, LoadedModel& model) {
  for (const std::string& path : config.init_adapter)
    for (const SavedAdapter& saved : open_adapters(path, model)) {
      const auto own = std::ranges::find_if(
          model.adapters, [&](const auto& adapter) { return adapter->kind() == saved.kind->name; });
      if (own == model.adapters.end())
        fail("{}: holds {}, which this run does not train; see its keys method and attention",
             saved.where, saved.name);
      if (!saved.base_fingerprint.empty())
        check_base(saved.where, saved.base_fingerprint, model.fingerprint(), model.where);
      (*own)->start_from(*saved.read(*model.decoder), saved.where);
    }
}

/// The base as it is before any step, where a run that changes it compares with it.
std::unique_ptr<Decoder> open_teacher(const RunConfig& config) {
  if (!config.needs_teacher()) return nullptr;
  LoadedModel teacher = load_model(config.base, config.tokenizer, config.precision);
  teacher.detach_attention();
  return std::move(teacher.decoder);
}

/// The config with the steps that its epochs of so many windows take.
RunConfig with_steps(RunConfig config, Index windows) {
  const auto in_step =
      static_cast<double>(config.data.batch * config.data.gradient_accumulation_steps);
  if (config.epochs > 0)
    config.steps =
        std::llround(std::ceil(config.epochs * static_cast<double>(windows) / in_step - 1e-9));
  return config;
}

}  // namespace

void attach_adapters(const RunConfig& config, LoadedModel& model, Rng& rng) {
  for (const AdapterChoice& choice : config.adapters())
    model.attach(
        choice.kind->make(choice.settings, model.decoder->config(), model.decoder.get(), rng));
}

LoadedModel open_training_model(const RunConfig& config) {
  say_products(config);
  say_balance(config);
  Rng rng(static_cast<std::uint64_t>(config.seed));
  LoadedModel model =
      config.method == Method::scratch
          ? new_model(config, rng)
          : load_model(config.base, config.tokenizer, config.precision,
                       config.trains_base() ? WeightUse::trainable : WeightUse::frozen);
  model.bos = config.data.bos;
  if (config.trains_base()) choose_products(config, *model.decoder);
  model.require_tokenizer();
  // A base that was trained with a Focus or a baseline comes with it attached; the config says what
  // attention this run has.
  model.detach_attention();
  check_positions(config, model);
  attach_adapters(config, model, rng);
  start_from_adapters(config, model);
  return model;
}

TrainingData open_training_data(const RunConfig& config, const LoadedModel& model) {
  TokenizeOptions options{.document_separator = config.data.document_separator,
                          .ends = model.text_ends(),
                          .end_documents = config.data.document_eos,
                          .cache_dir = config.data.cache_dir,
                          .preferences = config.prefers(),
                          .examples = example_format(model, config.data.examples)};
  if (options.cache_dir.empty()) options.cache_dir = cache_folder();
  const auto tokens_of = [&](const std::vector<std::string>& names,
                             const std::vector<std::string>& documents) {
    return tokenize_texts({{names.begin(), names.end()}, documents}, *model.tokenizer, options);
  };
  const auto batches = [&](TokenView view, bool shuffle) {
    return Batches(std::move(view),
                   {.batch = config.data.batch,
                    .context = config.data.context,
                    .shuffle = shuffle,
                    .seed = static_cast<std::uint64_t>(config.seed),
                    .vocab_size = static_cast<std::int32_t>(model.decoder->config().vocab_size),
                    .window_start = model.window_start(),
                    .packing = config.data.packing,
                    .pairs = config.prefers()});
  };
  const auto training = [&](const TokenView& view) {
    Batches train = batches(view, config.data.shuffle);
    std::string fingerprint = tokens_fingerprint(view, train.by_document());
    return TrainingData{.train = std::move(train), .fingerprint = std::move(fingerprint)};
  };
  const DataConfig& data_of = config.data;
  const auto mixed = [&] {
    std::vector<TokenFile> sources;
    for (const std::string& name : data_of.train) sources.push_back(tokens_of({name}, {}));
    return mixed_tokens(sources, data_of.mix);
  };
  const TokenFile train =
      data_of.mix.empty() ? tokens_of(data_of.train, data_of.train_texts) : mixed();
  if (!data_of.valid.empty() || !data_of.valid_texts.empty()) {
    TrainingData data = training(TokenView(train));
    data.valid = batches(TokenView(tokens_of(data_of.valid, data_of.valid_texts)), false);
    return data;
  }
  TokenSplit split =
      split_by_document(train, config.data.valid_fraction, static_cast<std::uint64_t>(config.seed),
                        config.prefers() ? 2 : 1);
  TrainingData data = training(split.train);
  if (split.valid.size() > 0) data.valid = batches(std::move(split.valid), false);
  return data;
}

Session open_session(const RunConfig& config) {
  config.validate();
  LoadedModel model = open_training_model(config);
  TrainingData data = open_training_data(config, model);
  RunConfig runs = with_steps(config, data.train.num_windows());
  return Session(std::move(runs), std::move(model), std::move(data), open_teacher(config));
}

Session random_session(const RunConfig& config, const ModelConfig& shape) {
  config.validate_step();
  Rng rng(static_cast<std::uint64_t>(config.seed));
  LoadedModel model;
  model.where = "random model";
  model.decoder = std::make_unique<Decoder>(shape);
  initialise(*model.decoder, rng);
  choose_products(config, *model.decoder);
  attach_adapters(config, model, rng);
  const auto vocab_size = static_cast<std::int32_t>(shape.vocab_size);
  std::vector<std::int32_t> ids(config.tokens_per_step());
  for (auto& id : ids)
    id = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab_size)));
  Batches batches(TokenView(TokenFile::from_tokens(ids, {}, vocab_size)),
                  {.batch = config.data.batch,
                   .context = config.data.context,
                   .shuffle = false,
                   .vocab_size = vocab_size});
  std::unique_ptr<Decoder> teacher;
  if (config.needs_teacher()) {
    teacher = std::make_unique<Decoder>(shape);
    initialise(*teacher, rng);
  }
  return Session(config, std::move(model), {.train = std::move(batches)}, std::move(teacher));
}

}  // namespace focus
