#include "data/files/durable_file.h"
#include "data/settings/struct_json.h"
#include "focus/c_interface/interface.h"
#include "focus/evaluation/report/evaluation_file.h"
#include "focus/evaluation/scores/requests.h"
#include "focus/evaluation/statistics/groups_report.h"
#include "focus/models/model_export.h"
#include "focus/training/choose_groups.h"
#include "focus/training/training.h"

namespace focus::c_interface {
namespace {

/// Settings of an evaluation, its windows as long as those that groups were fitted on by default.
EvalSettings evaluation_settings(const LoadedModel& model, const char* text) {
  EvalSettings settings;
  read_settings(text, "settings", settings);
  if (const Index fitted = fitted_context(model); fitted > 0) settings.default_context = fitted;
  return settings.for_model(model);
}

TextEvaluation evaluate_texts(OpenModel& open, const Texts& texts, const EvalSettings& settings,
                              const ShareDone& done) {
  LoadedModel& model = open.model;
  const std::vector<AttentionSpec> specs =
      settings.attentions.empty() ? std::vector{open.spec()}
                                  : resolve_words(settings.attentions, model,
                                                  DefaultBalance::causal_and_trained, "attentions");
  const std::vector<EvalText> read = read_texts(model, texts, settings);
  TextEvaluation figures = describe_texts(model, read, settings);
  DenseReference dense;
  for (std::size_t i = 0; i < specs.size(); ++i)
    figures.rows.push_back(evaluate(model, specs[i], read, settings,
                                    {.progress =
                                         [&](double share) {
                                           done((static_cast<double>(i) + share) /
                                                static_cast<double>(specs.size()));
                                         },
                                     .dense = &dense}));
  return figures;
}

/// What focus_model_generate() reads; without it the model's generation_config.json counts.
struct TextSettings {
  TextOptions options;
  std::optional<std::int64_t> top_logprobs = {};
  std::string prompt_cache = {};
  std::vector<std::string> logit_bias = {};  // "ID=NUMBER"
  std::optional<CacheDtype> cache_type = {};

  void visit(auto&& f) {
    GenerationOptions& generation = options.generation;
    f("max_new_tokens", generation.max_new_tokens, "", {1, 1e9});
    f("seed", generation.seed, "");
    f("temperature", generation.sampling.temperature, "");
    f("top_k", generation.sampling.top_k, "");
    f("top_p", generation.sampling.top_p, "");
    f("min_p", generation.sampling.min_p, "");
    f("repetition_penalty", generation.sampling.repetition_penalty, "");
    f("stop", generation.until, "");
    f("logit_bias", logit_bias, "");
    f("top_logprobs", top_logprobs, "", {0, 1000});
    f("cache_type", cache_type, "");
    f("speculate", options.speculate, "");
    f("prompt_cache", prompt_cache, "");
  }

  /// What the settings say.
  TextOptions taken(const LoadedModel& model) const {
    TextOptions taken = options;
    taken.prompt_cache = prompt_cache;
    taken.cache_dtype = cache_type;
    GenerationOptions& generation = taken.generation;
    generation.top_logprobs = top_logprobs;
    if (std::ranges::count(generation.until, "") > 0)
      fail("stop: an empty text would end every text");
    for (const std::string& word : logit_bias)
      generation.logit_bias.push_back(focus::logit_bias(word, model, "logit_bias"));
    return taken;
  }
};

Json text_json(const GeneratedText& made) {
  Json json = struct_to_json(made);
  json["logprobs"] = Json::array();
  for (const TokenLogprob& token : made.logprobs) {
    Json top = Json::array();
    for (const auto& [id, logprob] : token.top) top.push_back({id, logprob});
    json["logprobs"].push_back({{"id", token.id}, {"logprob", token.logprob}, {"top", top}});
  }
  return json;
}

struct FitRequest {
  FitSettings fit;
  GroupsGoal goal;

  void visit(auto&& f) {
    fit.visit(f);
    f("target", goal.target, "", {0, 1});
    f("density", goal.density, "", {0, 1});
  }
};

Json groups_json(const TriedGroups& tried) {
  return {{"num_groups", tried.num_groups},
          {"num_selected_groups", tried.num_selected_groups},
          {"local_window", tried.local_window},
          {"block", tried.block},
          {"sinks", tried.sinks},
          {"pairs_attended", tried.row.pairs_attended},
          {"pairs_choosing", tried.row.pairs_choosing},
          {"kl", tried.row.kl.value_or(0)},
          {"loss", tried.loss()},
          {"loss_error", tried.loss_error()}};
}

/// Fits by the request, or chooses by its goal; `given`: what is not to be chosen.
Json fit_by(OpenModel& open, const Batches& batches, const nlohmann::json& given,
            FitRequest& request, const ShareDone& done) {
  GroupsGoal& goal = request.goal;
  Json json;
  if (goal.target > 0 || goal.density > 0) {
    goal.fewer_too = !given.contains("num_groups");
    goal.local_window = !given.contains("local_window");
    goal.block = !given.contains("block");
    goal.sinks = !given.contains("sinks");
    const ChosenGroups chosen = choose_groups(open.model, batches, request.fit, goal, done);
    request.fit = chosen.settings;
    json = {{"reached", chosen.reached}, {"tried", Json::array()}, {"best", chosen.best}};
    for (const TriedGroups& tried : chosen.tried) json["tried"].push_back(groups_json(tried));
  } else {
    FocusModel& focus = attach_groups(open.model, request.fit);
    fit_focus(*open.model.decoder, focus, batches, request.fit.focus.keys().fit_tokens,
              static_cast<std::uint64_t>(request.fit.seed), [&](Index windows, Index all) {
                done(static_cast<double>(windows) / static_cast<double>(all));
              });
  }
  const FocusConfig& focus = request.fit.focus;
  json["num_groups"] = focus.num_groups;
  json["num_selected_groups"] = focus.summary.num_selected_groups;
  json["local_window"] = focus.local_window;
  json["block"] = focus.summary.block;
  json["sinks"] = focus.summary.sinks;
  json["context"] = batches.context();
  json["tokens"] = open.model.focus()->grouping().updates(0);
  return json;
}

/// In the place of what attends, which comes back where the fit fails or is stopped.
Json fit_groups(OpenModel& open, const Texts& texts, const char* settings, const ShareDone& done) {
  const nlohmann::json given = read_object(settings, "settings");
  FitRequest request;
  read_settings(settings, "settings", request);
  if (request.goal.target > 0 && request.goal.density > 0)
    fail("settings: expected target or density, got both");
  require_positions(open.model, request.fit.context, false, "settings: context");
  const bool all_free = std::ranges::none_of(
      std::array{"num_groups", "num_selected_groups", "local_window", "block", "sinks"},
      [&](const char* name) { return given.contains(name); });
  const Batches batches = fit_windows(open.model, texts, "", request.fit.context);
  if (all_free || request.goal.target > 0 || request.goal.density > 0) {
    request.fit.suit(batches.context());
    read_settings(settings, "settings", request);  // what was given stays
  }
  auto before = open.model.detach_attention();
  try {
    return fit_by(open, batches, given, request, done);
  } catch (...) {
    open.model.detach_attention();
    for (auto& adapter : before) open.model.attach(std::move(adapter));
    throw;
  }
}

struct ExportSettings {
  std::string format = "adapter", dtype = {};
  bool overwrite = false, with_code = false;

  void visit(auto&& f) {
    f("format", format, "");
    f("dtype", dtype, "");
    f("overwrite", overwrite, "");
    f("with_code", with_code, "");
  }
};

/// Opened once more: a loaded model has taken the tokenizer.
ModelFiles files_of(const OpenModel& open) {
  return open_model(open.model.where, open.options.tokenizer);
}

void export_gguf(OpenModel& open, const std::filesystem::path& path, const ExportSettings& s) {
  if (!s.overwrite && exists(path)) fail("{}: exists already; set overwrite", path.string());
  const bool lora = open.model.lora() != nullptr;
  const std::string word = !s.dtype.empty() ? s.dtype : lora ? "float32" : "f16";
  const Dtype dtype = weight_dtype(word, kGgufBlocks).dtype;
  if (lora)
    write_gguf_adapter(path, open.model, dtype);
  else
    write_gguf_model(path, files_of(open), dtype, open.options.tokenizer.empty());
}

void export_model(OpenModel& open, const std::filesystem::path& path, const ExportSettings& s) {
  if (open.model.lora() != nullptr)
    fail("format model: a LoRA is attached; take format adapter, or focus merge");
  const std::string word = s.dtype.empty() ? "float32" : s.dtype;
  const ExportOptions options = {.dtype = word, .overwrite = s.overwrite, .with_code = s.with_code};
  const ModelFiles files = files_of(open);
  if (open.model.focus() == nullptr) {
    write_model_folder(path, files, std::nullopt, options);
    return;
  }
  // A hidden folder beside the target, never committed: it goes at the end.
  const DurableFolder beside(path, s.overwrite, [](const std::string&) { return true; });
  const std::filesystem::path saved = beside.temporary() / "focus.h5";
  write_adapter(saved, *open.model.focus(), open.model);
  write_model_folder(path, files, open_focus(saved), options);
}

void save_adapter(OpenModel& open, const std::filesystem::path& path) {
  if (open.model.adapters.empty()) fail("the model has no adapter to save; attach or fit one");
  if (exists(path) && !(is_checkpoint_file(path) && StoreReader(path).kind() == "adapter"))
    fail("{}: is not an adapter, so it is not replaced; choose another name", path.string());
  StoreWriter store(path, "adapter");
  for (const auto& adapter : open.model.adapters) adapter->write(store, open.model.fingerprint());
  store.commit();
}

struct TrainOptions {
  bool resume = false, overwrite = false;
  std::int64_t stop_at = 0;

  void visit(auto&& f) {
    f("resume", resume, "");
    f("overwrite", overwrite, "");
    f("stop_at", stop_at, "", {0, 1e12});
  }
};

/// A run's callbacks as events of a callback, which ends the run, as `stop_at` does, by `stopped`.
TrainingCallbacks told_events(const RunConfig& config, std::int64_t stop_at, bool& stopped,
                              focus_callback events, void* user) {
  const auto tell = [&stopped, events, user](const Json& event) {
    if (events != nullptr && events(json_text(event).c_str(), user) != 0) stopped = true;
  };
  TrainingCallbacks callbacks;
  callbacks.on_start = [=, &config](const Session& session, const auto& resumed) {
    tell({{"event", "start"},
          {"step", session.steps()},
          {"steps", config.steps},
          {"trainable", session.count_trainable()},
          {"resumed", resumed ? Json(resumed->string()) : Json()}});
  };
  callbacks.on_step = [=, &config, &stopped](const Session&, const StepReport& report) {
    tell({{"event", "step"},
          {"step", report.step},
          {"steps", config.steps},
          {"loss", report.result.loss},
          {"grad_norm", report.result.grad_norm},
          {"lr", report.result.lr},
          {"tokens", report.tokens}});
    if (report.step == stop_at) stopped = true;
  };
  callbacks.on_validation = [=](std::int64_t step, double loss) {
    tell({{"event", "validation"}, {"step", step}, {"loss", loss}});
  };
  callbacks.on_work = [=](std::string_view work, double share) {
    tell({{"event", "work"}, {"work", work}, {"share", share}});
  };
  callbacks.should_stop = [&stopped] { return stopped; };
  return callbacks;
}

Json train(const char* path, const char* settings, const char* given, focus_callback events,
           void* user) {
  TrainOptions options;
  read_settings(given, "options", options);
  RunConfig config;
  if (path != nullptr) read_config_text(read_config_file(path), path, {}, config);
  read_settings(settings, "settings", config);
  config.validate_step();
  if (config.threads > 0) omp_set_num_threads(config.threads);
  const RunFolderOptions folder = {.resume = options.resume, .overwrite = options.overwrite};
  config = divided_config(config, 1, folder);
  Session session = open_session(config);
  config.steps = session.config().steps;
  bool stopped = false;
  return struct_to_json(run_training_in_folder(
      session, folder, told_events(config, options.stop_at, stopped, events, user)));
}

}  // namespace
}  // namespace focus::c_interface

using namespace focus;               // NOLINT: what follows is C
using namespace focus::c_interface;  // NOLINT

focus_status focus_model_evaluate(focus_model* model, focus_texts texts, const char* settings,
                                  focus_callback progress, void* user, focus_value** json) {
  return make_on(model, json, [&](OpenModel& open) {
    return struct_to_json(evaluate_texts(open, texts_of(texts),
                                         evaluation_settings(open.model, settings),
                                         told(open, "evaluate", progress, user)));
  });
}

focus_status focus_model_score(focus_model* model, const char* requests, const char* settings,
                               focus_callback progress, void* user, focus_value** answers) {
  return make_on(model, answers, [&](OpenModel& open) {
    ScoreOptions read;
    read_settings(settings, "settings", read);
    const std::vector<ScoreRequest> asked = parse_requests(text_of(requests), "requests");
    const std::vector<ScoreAnswer> answered =
        answer_requests(open.model, open.spec(), asked, read, told(open, "score", progress, user));
    std::string lines;
    for (std::size_t i = 0; i < asked.size(); ++i)
      lines += answer_line(asked[i], answered[i]) + "\n";
    return lines;
  });
}

focus_status focus_model_generate(focus_model* model, focus_ids prompt, const char* settings,
                                  focus_callback on_text, void* user, focus_value** json) {
  return make_on(model, json, [&](OpenModel& open) {
    TextSettings read{.options = TextOptions::of(open.model)};
    read_settings(settings, "settings", read);
    TextOptions options = read.taken(open.model);
    options.attention = open.attention;
    const auto tell = [&](const std::string& text) {
      return !open.cancelled && (on_text == nullptr || on_text(text.c_str(), user) == 0);
    };
    const GeneratedText made = generate(open.model, ids_of(prompt), options, tell);
    if (open.cancelled) throw Stopped();
    return text_json(made);
  });
}

focus_status focus_model_fit(focus_model* model, focus_texts texts, const char* settings,
                             focus_callback progress, void* user, focus_value** json) {
  return make_on(model, json, [&](OpenModel& open) {
    Json chosen = fit_groups(open, texts_of(texts), settings, told(open, "fit", progress, user));
    open.attention.clear();
    return chosen;
  });
}

focus_status focus_model_groups(focus_model* model, focus_texts texts, const char* settings,
                                focus_callback progress, void* user, focus_value** json) {
  return make_on(model, json, [&](OpenModel& open) {
    const EvalSettings read = evaluation_settings(open.model, settings);
    const TextWindows windows =
        windows_for(open.model, read_texts(open.model, texts_of(texts), read), read.context);
    return struct_to_json(
        describe_groups(open.model, windows, read.context, told(open, "groups", progress, user)));
  });
}

focus_status focus_model_save_adapter(focus_model* model, const char* path) {
  return call_on(model, [&](OpenModel& open) {
    require(path, "path");
    save_adapter(open, path);
  });
}

focus_status focus_model_export(focus_model* model, const char* path, const char* settings) {
  return call_on(model, [&](OpenModel& open) {
    require(path, "path");
    ExportSettings read;
    read_settings(settings, "settings", read);
    if (read.format == "gguf")
      export_gguf(open, path, read);
    else if (read.format == "model")
      export_model(open, path, read);
    else if (read.format == "adapter")
      write_adapters_folder(path, open.model, open.model.where, read.overwrite);
    else
      fail("format: expected adapter, model or gguf, got {}", read.format);
  });
}

focus_status focus_train(const char* config, const char* settings, const char* options,
                         focus_callback events, void* user, focus_value** json) {
  return call([&] { give(json, [&] { return train(config, settings, options, events, user); }); });
}
