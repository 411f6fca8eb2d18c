#include "apps/trainer.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <sstream>

#include "focus/lora/lora_io.h"
#include "apps/terminal/progress.h"
#include "data/settings/recipe.h"
#include "focus/train/rival_io.h"
#include "autograd/check.h"
#include "autograd/clock.h"
#include "data/files/checkpoint_folder.h"
#include "data/files/checksum.h"
#include "data/files/durable_file.h"
#include "focus/lora/peft_adapter.h"
#include "layers/weights.h"

namespace focus {
namespace {

std::atomic<bool> stop_requested{false};

std::filesystem::path default_cache() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache)
    return std::filesystem::path(cache) / "focus";
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::filesystem::path(home) / ".cache" / "focus";
  return {};
}

/// An update may leave numbers that no loss has seen yet: they must not reach a checkpoint.
void check_finite(const NamedParameters& parameters, std::int64_t step) {
  for (const NamedParameter& p : parameters)
    for (const Real x : p.variable.value().span())
      if (!std::isfinite(x))
        fail("step {}: {} is not finite after the update; lower optim.lr", step, p.name);
}

/// XXH3-128 of the token ids that a run trains on.
std::string fingerprint_of(const TokenView& tokens) {
  Checksum checksum;
  std::vector<std::int32_t> part(1 << 20);
  for (Index i = 0; i < tokens.size(); i += static_cast<Index>(part.size())) {
    part.resize(static_cast<std::size_t>(std::min<Index>(1 << 20, tokens.size() - i)));
    tokens.copy(i, part);
    checksum.update(std::as_bytes(std::span(part)));
  }
  return checksum.hex();
}

/// Another one for every forward pass of every run: a resumed run drops what it would have dropped.
std::uint64_t dropout_key(const RunConfig& config, std::int64_t step, int part) {
  Rng rng(static_cast<std::uint64_t>(config.seed));
  return rng.next() + static_cast<std::uint64_t>(step * config.data.accumulate + part);
}

/// The largest group's share of the tokens: of each layer, and their mean. Nothing without Focus.
void add_group_shares(nlohmann::ordered_json& record, const std::vector<GroupStatistics>& layers) {
  if (layers.empty()) return;
  std::vector<double> shares;
  for (const GroupStatistics& layer : layers) shares.push_back(layer.dominance());
  record["largest_group"] =
      std::accumulate(shares.begin(), shares.end(), 0.0) / static_cast<double>(shares.size());
  record["largest_group_layers"] = shares;
}

/// The first line in which two dumps differ.
std::string first_difference(const std::string& before, const std::string& after) {
  std::istringstream a(before), b(after);
  for (std::string x, y; std::getline(a, x) && std::getline(b, y);)
    if (x != y) return fmt::format("\"{}\" then, \"{}\" now", x, y);
  return "their lengths";
}

}  // namespace

RunConfig only_what_counts(RunConfig config) {
  const RunConfig defaults;
  config.out = defaults.out;
  config.threads = defaults.threads;
  config.log_every = defaults.log_every;
  config.eval_every = defaults.eval_every;
  config.eval_windows = defaults.eval_windows;
  config.checkpoint_every = defaults.checkpoint_every;
  config.checkpoint_keep = defaults.checkpoint_keep;
  config.data.cache_dir = defaults.data.cache_dir;
  return config;
}

std::string settings_that_count(const RunConfig& config) {
  return dump_recipe(only_what_counts(config));
}

void install_stop_signals() {
  const auto handler = [](int signal) {
    if (stop_requested.exchange(true)) std::_Exit(128 + signal);
  };
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
}

Trainer::Trainer(RunConfig config) : config_(std::move(config)) {
  config_.validate();
  build_model();
  read_data();
  enter_phase(0);
}

Trainer::Trainer(RunConfig config, const ModelConfig& shape) : config_(std::move(config)) {
  config_.validate_step();
  Rng rng(static_cast<std::uint64_t>(config_.seed));
  model_.where = "random model";
  model_.decoder = std::make_unique<Decoder>(shape);
  initialise(*model_.decoder, rng);
  if (config_.compute == Compute::bf16) {
    freeze_matrices(*model_.decoder, MatrixForm::bf16);
  }
  compose(rng);
  const auto vocab_size = static_cast<std::int32_t>(shape.vocab_size);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(
      config_.data.batch * config_.data.accumulate * config_.data.context));
  for (auto& id : ids)
    id = static_cast<std::int32_t>(rng.below(static_cast<std::uint64_t>(vocab_size)));
  train_ = Batches(TokenView(TokenFile::from_tokens(ids, {}, vocab_size)),
                   {.batch = config_.data.batch,
                    .context = config_.data.context,
                    .shuffle = false,
                    .vocab_size = vocab_size});
  enter_phase(0);
}

void Trainer::build_model() {
  Rng rng(static_cast<std::uint64_t>(config_.seed));
  if (config_.method == Method::scratch) {
    model_.where = "new model";
    model_.tokenizer = load_tokenizer(config_.tokenizer);
    ModelConfig shape =
        config_.model.to_model_config(model_.tokenizer->vocab_size(), config_.data.context);
    if (const auto id = model_.tokenizer->bos_id()) shape.bos_token_id = *id;
    if (const auto id = model_.tokenizer->eos_id()) shape.eos_token_id = *id;
    model_.decoder = std::make_unique<Decoder>(shape);
    initialise(*model_.decoder, rng);
  } else {
    model_ = load_model(config_.base, config_.tokenizer, config_.compute);
    model_.require_tokenizer();
    // A base that was trained with a Focus or a rival comes composed with it; the recipe says what
    // attention this run has.
    clear_mechanisms(*model_.decoder);
    model_.focus.reset();
    model_.rival.reset();
  }
  compose(rng);
}

void Trainer::compose(Rng& rng) {
  const Index positions = model_.decoder->config().max_position_embeddings;
  if (config_.data.context > positions)
    fail("data.context {} is longer than the {} positions of {}", config_.data.context, positions,
         model_.where);
  if (config_.has_focus()) {
    focus_ = std::make_unique<FocusModel>(config_.focus, model_.decoder->config().hidden_size,
                                          model_.decoder->config().num_hidden_layers, rng);
    focus_->compose(*model_.decoder);
    set_requires_grad(*focus_, true);
  }
  if (config_.method == Method::lora) {
    lora_ = std::make_unique<LoraModel>(config_.lora, *model_.decoder, rng);
    lora_->compose();
    set_requires_grad(*lora_, true);
  }
  if (const auto rival = config_.rival()) {
    rival_ = std::make_unique<RivalModel>(*rival, model_.decoder->config());
    rival_->compose(*model_.decoder);
  }
}

void Trainer::enter_phase(std::int64_t step) {
  phase_ = config_.phase_at(step);
  trains_base_ = config_.trains_base_at(step);
  set_requires_grad(*model_.decoder, trains_base_);
  model_.decoder->dropout = trains_base_ ? config_.model.dropout : 0;
  adamw_.reset();  // its moments' memory is the next one's
  adamw_ = std::make_unique<AdamW>(trainable(), phase_.optim);
}

void Trainer::read_data() {
  TokenizeOptions options{.document_separator = config_.data.document_separator,
                          .prepend_id = model_.document_start(),
                          .cache_dir = config_.data.cache_dir};
  if (options.cache_dir.empty()) options.cache_dir = default_cache();
  const auto tokens_of = [&](const std::vector<std::string>& names) {
    const std::vector<std::filesystem::path> paths(names.begin(), names.end());
    return tokenize_cached(paths, *model_.tokenizer, options);
  };
  const auto vocab_size = static_cast<std::int32_t>(model_.decoder->config().vocab_size);
  const auto train_on = [&](const TokenView& view) {
    data_fingerprint_ = fingerprint_of(view);
    return view;
  };
  const auto batches = [&](TokenView view, bool shuffle) {
    return Batches(std::move(view), {.batch = config_.data.batch,
                                     .context = config_.data.context,
                                     .shuffle = shuffle,
                                     .seed = static_cast<std::uint64_t>(config_.seed),
                                     .vocab_size = vocab_size});
  };
  const TokenFile train = tokens_of(config_.data.train);
  if (!config_.data.valid.empty()) {
    train_ = batches(train_on(TokenView(train)), config_.data.shuffle);
    valid_ = batches(TokenView(tokens_of(config_.data.valid)), false);
  } else {
    TokenSplit split = split_by_document(train, config_.data.valid_fraction,
                                         static_cast<std::uint64_t>(config_.seed));
    train_ = batches(train_on(split.train), config_.data.shuffle);
    if (split.valid.size() > 0) valid_ = batches(std::move(split.valid), false);
  }
}

NamedParameters Trainer::trainable() {
  NamedParameters parameters;
  const auto add = [&](const std::string& name, const Weight& p) {
    if (p.requires_grad()) parameters.push_back({name, p.variable()});
  };
  for_each_parameter(*model_.decoder, add, "model");
  if (focus_) for_each_parameter(*focus_, add, "focus");
  if (lora_) for_each_parameter(*lora_, add, "lora");
  return parameters;
}

AttentionMode Trainer::mode_at(std::int64_t step) const {
  if (!focus_) return {.kind = AttentionMode::Kind::dense};
  AttentionMode mode{.kind = AttentionMode::Kind::soft, .balance = config_.focus.balance};
  const bool first_phase = config_.phase_at(step).first == 0;
  if (mode.balance == Balance::carried && first_phase && step < config_.focus.sequence_steps)
    mode.balance = Balance::sequence;
  if (config_.focus.training == Training::hard) {
    mode.kind = AttentionMode::Kind::hard;
    mode.top_k = config_.focus.train_top_k;
    mode.hard_gate = HardGate::keep;
  }
  return mode;
}

StepResult Trainer::step_once(std::int64_t step) {
  if (config_.phase_at(step).first != phase_.first) enter_phase(step);
  step_groups_.clear();
  step_auxiliary_ = 0;
  if (focus_) {
    focus_->mode = mode_at(step);
    step_groups_.resize(focus_->layers().size());
  }
  double loss_of_text = 0;
  StepResult done = training_step(*adamw_, phase_, step, config_.data.accumulate, [&](int part) {
    const Batch batch = train_->next();
    const TrainingPass pass(*model_.decoder, dropout_key(config_, step, part));
    Variable loss = model_.decoder->loss(batch.ids, batch.batch);
    loss_of_text += static_cast<double>(loss.value()[0]) / config_.data.accumulate;
    for (std::size_t i = 0; i < step_groups_.size(); ++i)
      step_groups_[i].add_sizes(focus_->last_routings()[i]);
    if (focus_) {
      if (const Variable terms = focus_->take_auxiliary_loss(); terms.defined()) {
        step_auxiliary_ += static_cast<double>(terms.value()[0]) / config_.data.accumulate;
        loss = add(loss, terms);
      }
      focus_->update_potentials();
      focus_->update_centroids();
    }
    if (rival_) rival_->update();
    return loss;
  });
  if (focus_) focus_->recluster(step + 1);
  done.loss = loss_of_text;
  return done;
}

std::optional<double> Trainer::validate_now() {
  if (!valid_) return std::nullopt;
  const NoGrad guard;
  if (focus_) focus_->mode = {.kind = AttentionMode::Kind::soft, .balance = config_.focus.balance};
  const Index windows = std::min<Index>(config_.eval_windows, valid_->num_windows());
  // Spread over the text: its first windows alone may all be of one book.
  double nats = 0;
  for (Index i = 0; i < windows; ++i) {
    const Batch batch = valid_->windows(i * valid_->num_windows() / windows, 1);
    nats += static_cast<double>(model_.decoder->loss(batch.ids, 1).value()[0]);
  }
  return nats / static_cast<double>(windows);
}

double Trainer::timed_pass(std::int64_t step, TimedPass pass) {
  const double start = now();
  if (pass == TimedPass::step) {
    step_once(step);
    return now() - start;
  }
  const NoGrad guard;
  if (focus_) focus_->mode = mode_at(step);
  for (int i = 0; i < config_.data.accumulate; ++i) {
    const Batch batch = train_->next();
    model_.decoder->loss(batch.ids, batch.batch);
  }
  return now() - start;
}

std::string Trainer::phase_name() const { return phase_.first == 0 ? "phase 1" : "phase 2"; }

Index Trainer::count_all() {
  return count_parameters(*model_.decoder) + (focus_ ? count_parameters(*focus_) : 0) +
         (lora_ ? count_parameters(*lora_) : 0);
}

Index Trainer::count_trainable() const {
  Index count = 0;
  for (const NamedParameter& p : adamw_->parameters()) count += p.variable.value().size();
  return count;
}

double DryRun::seconds() const {
  double seconds = 0;
  for (const DryPhase& phase : phases)
    seconds += phase.seconds_per_step * static_cast<double>(phase.steps);
  return seconds;
}

double DryRun::tokens_per_step() const {
  std::int64_t steps = 0;
  for (const DryPhase& phase : phases) steps += phase.steps;
  return static_cast<double>(tokens) / static_cast<double>(steps);
}

DryRun Trainer::dry_run() {
  DryRun dry;
  const auto add = [&](const std::string&, const Weight& p) { dry.weight_bytes += p.bytes(); };
  for_each_parameter(*model_.decoder, add);
  if (focus_) for_each_parameter(*focus_, add);
  if (lora_) for_each_parameter(*lora_, add);
  dry.train_tokens = train_->num_windows() * config_.data.context;
  dry.tokens = config_.steps * config_.data.batch * config_.data.accumulate * config_.data.context;
  for (std::int64_t step = 0; step < config_.steps; step += phase_.steps)
    dry.phases.push_back(dry_phase(step));
  return dry;
}

DryPhase Trainer::dry_phase(std::int64_t step) {
  enter_phase(step);
  DryPhase dry{.steps = phase_.steps, .trainable = count_trainable()};
  dry.frozen = count_all() - dry.trainable;
  dry.gradient_bytes = static_cast<std::size_t>(dry.trainable) * sizeof(Real);
  dry.optimiser_bytes = 2 * dry.gradient_bytes;
  // The first step fills the pool, the second one is timed.
  const std::size_t before = pool_stats().live;
  reset_pool_peak();
  step_once(step);
  dry.seconds_per_step = timed_pass(step);
  const std::size_t peak = pool_stats().peak - before;
  dry.activation_bytes = peak > dry.gradient_bytes ? peak - dry.gradient_bytes : peak;
  return dry;
}

void Trainer::save_checkpoint(const std::filesystem::path& path, std::int64_t step,
                              std::optional<double> valid_start) {
  StoreWriter store(path, "training");
  store.text("/config.yaml", dump_recipe(config_));
  if (trains_base_) write_model(store, *model_.decoder, model_.tokenizer.get());
  if (focus_)
    write_focus(store, *focus_,
                trains_base_ ? model_fingerprint(*model_.decoder) : model_.fingerprint);
  if (lora_) write_lora(store, *lora_, model_.fingerprint);
  if (rival_) write_rival(store, *rival_);
  for (std::size_t i = 0; i < adamw_->parameters().size(); ++i) {
    const std::string& name = adamw_->parameters()[i].name;
    store.tensor(store_path("/optim/m", name), adamw_->moments()[i].m);
    store.tensor(store_path("/optim/v", name), adamw_->moments()[i].v);
  }
  store.attribute("/optim", "steps", adamw_->steps());
  const BatchState data = train_->state();
  store.attribute("/train", "step", step);
  store.attribute("/train", "tokens",
                  step * config_.data.batch * config_.data.accumulate * config_.data.context);
  if (valid_start) store.attribute("/train", "valid_loss_start", *valid_start);
  store.attribute("/train", "data_fingerprint", data_fingerprint_);
  store.attribute("/train", "data_seed", data.seed);
  store.attribute("/train", "data_epoch", data.epoch);
  store.attribute("/train", "data_position", data.position);
  store.attribute("/train", "data_windows", data.windows);
  store.commit();
}

void Trainer::restore_checkpoint(const std::filesystem::path& path, std::int64_t& step,
                                 std::optional<double>& valid_start) {
  const StoreReader store(path);
  RunConfig stored;
  read_recipe_text(store.text("/config.yaml"), path.string() + ": /config.yaml", {}, stored);
  if (const std::string then = settings_that_count(stored), today = settings_that_count(config_);
      then != today)
    fail(
        "{}: was made by other settings ({}); resume with the same recipe, or start anew with "
        "--overwrite",
        path.string(), first_difference(then, today));
  step = store.int_attribute("/train", "step");
  enter_phase(std::max<std::int64_t>(step, 1) - 1);
  if (!trains_base_)
    if (const std::string then =
            store.string_attribute(lora_ ? "/lora" : "/focus", "base_fingerprint");
        then != model_.fingerprint)
      fail(
          "{}: made for the base with fingerprint {}, but {} has {} now; start anew with "
          "--overwrite",
          path.string(), then, model_.where, model_.fingerprint);
  if (store.string_attribute("/train", "data_fingerprint") != data_fingerprint_)
    fail("{}: was trained on other text than data.train gives now; start anew with --overwrite",
         path.string());
  if (trains_base_) load_weights(*model_.decoder, *store.source("/model"));
  if (focus_) restore_focus(open_focus(store), *focus_);
  if (lora_) restore_lora(store, *lora_);
  if (rival_) restore_rival(store, *rival_);
  for (std::size_t i = 0; i < adamw_->parameters().size(); ++i) {
    const std::string& name = adamw_->parameters()[i].name;
    AdamW::Moments& moments = adamw_->moments()[i];
    moments.m = store.tensor(store_path("/optim/m", name), moments.m.shape());
    moments.v = store.tensor(store_path("/optim/v", name), moments.v.shape());
  }
  adamw_->set_steps(store.int_attribute("/optim", "steps"));
  train_->restore({.seed = store.uint_attribute("/train", "data_seed"),
                   .epoch = store.int_attribute("/train", "data_epoch"),
                   .position = store.int_attribute("/train", "data_position"),
                   .windows = store.int_attribute("/train", "data_windows")});
  if (valid_) valid_start = store.double_attribute("/train", "valid_loss_start");
}

std::filesystem::path Trainer::write_artifact(std::int64_t step) {
  const bool whole = config_.trains_base();
  const std::filesystem::path out = config_.out;
  if (lora_) write_peft_adapter(out, *lora_, config_.base);
  const auto path = out / (whole ? "model.h5" : lora_ ? "lora.h5" : "focus.h5");
  StoreWriter store(path, whole ? "model" : "adapter");
  store.text("/config.yaml", dump_recipe(config_));
  store.attribute("/train", "step", step);
  if (whole) write_model(store, *model_.decoder, model_.tokenizer.get());
  if (focus_)
    write_focus(store, *focus_, whole ? model_fingerprint(*model_.decoder) : model_.fingerprint);
  if (lora_) write_lora(store, *lora_, model_.fingerprint);
  if (rival_) write_rival(store, *rival_);
  store.commit();
  return path;
}

TrainResult Trainer::run(const TrainOptions& options) {
  const std::filesystem::path out = config_.out;
  std::error_code error;
  std::filesystem::create_directories(out, error);
  if (error)
    fail("cannot make the folder {}: {}; choose another with out=", out.string(), error.message());
  CheckpointFolder checkpoints(out / "checkpoints", config_.checkpoint_keep);
  TrainResult result;
  const auto latest = options.overwrite ? std::nullopt : checkpoints.latest();
  if (latest && !options.resume)
    fail(
        "{}: holds a run already; add --resume to go on, --overwrite to start anew, or choose "
        "another out=",
        out.string());
  std::optional<std::int64_t> resumed;
  if (latest) {
    restore_checkpoint(*latest, result.step, result.valid_loss_start);
    resumed = result.step;
    fmt::print(stderr, "resumed at step {} from {}\n", result.step, latest->string());
  } else if (options.overwrite) {
    std::filesystem::remove_all(out / "checkpoints");
    checkpoints = CheckpointFolder(out / "checkpoints", config_.checkpoint_keep);
  }
  sweep_orphans(out);
  fmt::print(stderr, "{}", dump_recipe(config_));
  fmt::print(stderr, "training on {} windows of {} tokens, {} parameters{}\n",
             train_->num_windows(), config_.data.context, count_trainable(),
             phase_.steps == config_.steps ? "" : " in " + phase_name());
  write_file_durably(out / "config.yaml", std::string_view(dump_recipe(config_)));
  MetricsFile metrics(out / "metrics.jsonl", resumed);

  const std::int64_t tokens_per_step =
      config_.data.batch * config_.data.accumulate * config_.data.context;
  Progress progress({.label = "train",
                     .total_steps = config_.steps,
                     .first_step = result.step,
                     .line_every = INT64_MAX});
  const auto validation = [&](std::int64_t step) {
    result.valid_loss = validate_now();
    if (!result.valid_loss) return;
    const double loss = *result.valid_loss, perplexity = std::exp(loss);
    if (!std::isfinite(loss))
      fail("step {}: the validation loss is {}; lower optim.lr, or look at the weights of the base",
           step, loss);
    metrics.write({{"step", step}, {"valid_loss", loss}, {"valid_perplexity", perplexity}});
    progress.note(
        fmt::format("step {}  valid loss {:.4f}  perplexity {:.2f}", step, loss, perplexity));
  };
  if (result.step == config_.steps) result.valid_loss = validate_now();
  if (!resumed) {
    validation(0);
    result.valid_loss_start = result.valid_loss;
  }

  double since = now();
  std::int64_t since_step = result.step, saved = result.step;
  bool stop = false;
  while (result.step < config_.steps && !stop) {
    const std::int64_t phase_before = phase_.first;
    const StepResult done = step_once(result.step);
    if (phase_.first != phase_before)
      progress.note(fmt::format("{} from step {} on: {} parameters", phase_name(), result.step + 1,
                                count_trainable()));
    const std::int64_t step = ++result.step;
    progress.update(step, done.loss, tokens_per_step);
    stop = stop_requested.load() || step == options.stop_at;
    if (step % config_.log_every == 0 || step == config_.steps) {
      const double seconds = now() - since;
      const double rate = static_cast<double>((step - since_step) * tokens_per_step) / seconds;
      const double left = static_cast<double>((config_.steps - step) * tokens_per_step) / rate;
      nlohmann::ordered_json record = {{"step", step},
                                       {"loss", done.loss},
                                       {"grad_norm", done.grad_norm},
                                       {"lr", done.lr},
                                       {"tokens_per_second", rate}};
      if (phase_.steps != config_.steps) record["phase"] = phase_.first == 0 ? 1 : 2;
      add_group_shares(record, step_groups_);
      if (config_.has_focus() && (config_.focus.balance_loss > 0 || config_.focus.entropy_loss > 0))
        record["auxiliary_loss"] = step_auxiliary_;
      metrics.write(record);
      progress.note(
          fmt::format("step {}/{}  loss {:.4f}  grad norm {:.3g}  lr {:.2e}  {} tok/s  ETA {}",
                      step, config_.steps, done.loss, done.grad_norm, done.lr, format_count(rate),
                      format_duration(left)));
      since = now();
      since_step = step;
    }
    const bool last = step == config_.steps;
    if (last || (config_.eval_every > 0 && step % config_.eval_every == 0)) {
      const double start = now();
      validation(step);
      since += now() - start;
    }
    if (last || stop || (config_.checkpoint_every > 0 && step % config_.checkpoint_every == 0)) {
      const double start = now();
      check_finite(adamw_->parameters(), step);
      save_checkpoint(checkpoints.path_for(step), step, result.valid_loss_start);
      checkpoints.publish(step);
      saved = step;
      since += now() - start;
    }
  }
  progress.finish();
  result.finished = result.step == config_.steps;
  if (result.finished)
    result.artifact = write_artifact(result.step);
  else
    fmt::print(stderr, "stopped at step {}; checkpoint {} is written, --resume goes on\n",
               result.step, checkpoints.path_for(saved).string());
  return result;
}

}  // namespace focus
