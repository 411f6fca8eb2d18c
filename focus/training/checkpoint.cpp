#include "autograd/base/check.h"
#include "data/files/notice.h"
#include "data/settings/config.h"
#include "focus/adapter.h"
#include "focus/training/training.h"
#include "layers/weights.h"

namespace focus {
namespace {

/// Where the trained model and what is put onto it go.
void write_trained(StoreWriter& store, Session& session) {
  LoadedModel& model = session.model();
  if (session.trains_base()) write_model(store, model);
  const std::string base = model.adapters.empty() ? "" : session.base_fingerprint();
  for (const auto& adapter : model.adapters) adapter->write(store, base);
}

/// Throws where the checkpoint is not of this config, base and text. The session is in the phase of
/// the checkpoint.
void check_same_run(const StoreReader& store, Session& session, const std::string& path) {
  const LoadedModel& model = session.model();
  if (!session.trains_base())
    for (const auto& adapter : model.adapters) {
      const std::string then = store.string_attribute(
          std::string(adapter_kind(adapter->kind()).store_group), "base_fingerprint");
      if (then != model.fingerprint())
        fail(
            "{}: made for the base with fingerprint {}, but {} has {} now; start again with "
            "--overwrite",
            path, then, model.where, model.fingerprint());
    }
  if (store.string_attribute("/train", "data_fingerprint") != session.data().fingerprint)
    fail(
        "{}: was trained on different text from data.train; start again with --overwrite, or set "
        "data.document_eos=false where the run is older than that key",
        path);
}

}  // namespace

void write_checkpoint(const std::filesystem::path& path, Session& session,
                      const Validations& validations) {
  StoreWriter store(path, "training");
  store.text("/config.yaml", dump_config(session.config()));
  write_trained(store, session);
  AdamW& adamw = session.optimiser();
  for (std::size_t i = 0; i < adamw.parameters().size(); ++i) {
    const std::string& name = adamw.parameters()[i].name;
    store.tensor(store_path("/optim/m", name), adamw.moments()[i].m);
    store.tensor(store_path("/optim/v", name), adamw.moments()[i].v);
  }
  store.attribute("/optim", "steps", adamw.steps());
  const BatchState data = session.data().train.state();
  store.attribute("/train", "step", session.steps());
  store.attribute("/train", "tokens", session.steps() * session.config().tokens_per_step());
  if (validations.start) store.attribute("/train", "valid_loss_start", *validations.start);
  if (validations.best) {
    store.attribute("/train", "valid_loss_best", *validations.best);
    store.attribute("/train", "best_step", validations.best_step);
    store.attribute("/train", "validations_without_gain", validations.without_gain);
  }
  store.attribute("/train", "data_fingerprint", session.data().fingerprint);
  store.attribute("/train", "data_seed", data.seed);
  store.attribute("/train", "data_epoch", data.epoch);
  store.attribute("/train", "data_position", data.position);
  store.attribute("/train", "data_windows", data.windows);
  store.commit();
}

Validations restore_checkpoint(const std::filesystem::path& path, Session& session) {
  const StoreReader store(path);
  RunConfig stored = read_stored_run(store.text("/config.yaml"), path.string() + ": /config.yaml");
  const std::int64_t done = store.int_attribute("/train", "step"), steps = session.config().steps;
  if (steps != stored.steps && steps >= done) {
    notice("steps was {} and is {}: from step {} on the learning rate follows the schedule of {}",
           stored.steps, steps, done, steps);
    stored.steps = steps;
    stored.epochs = session.config().epochs;
  }
  if (const std::string changed = first_changed_setting(stored, session.config()); !changed.empty())
    fail(
        "{}: was made with different settings ({}); resume with the same config, or start again "
        "with --overwrite",
        path.string(), changed);
  session.seek(done);
  check_same_run(store, session, path.string());
  LoadedModel& model = session.model();
  if (session.trains_base()) load_weights(*model.decoder, *store.source("/model"));
  for (const auto& adapter : model.adapters) adapter->restore(store);
  AdamW& adamw = session.optimiser();
  for (std::size_t i = 0; i < adamw.parameters().size(); ++i) {
    const std::string& name = adamw.parameters()[i].name;
    AdamW::Moments& moments = adamw.moments()[i];
    moments.m = store.tensor(store_path("/optim/m", name), moments.m.shape());
    moments.v = store.tensor(store_path("/optim/v", name), moments.v.shape());
  }
  adamw.set_steps(store.int_attribute("/optim", "steps"));
  session.data().train.restore({.seed = store.uint_attribute("/train", "data_seed"),
                                .epoch = store.int_attribute("/train", "data_epoch"),
                                .position = store.int_attribute("/train", "data_position"),
                                .windows = store.int_attribute("/train", "data_windows")});
  Validations validations;
  if (!session.data().valid) return validations;
  validations.start = store.double_attribute("/train", "valid_loss_start");
  if (store.has_attribute("/train", "best_step")) {
    validations.best = store.double_attribute("/train", "valid_loss_best");
    validations.best_step = store.int_attribute("/train", "best_step");
    validations.without_gain = store.int_attribute("/train", "validations_without_gain");
  }
  return validations;
}

std::filesystem::path write_result(const std::filesystem::path& folder, Session& session) {
  const bool whole = session.config().trains_base();
  std::string name = "model";
  for (const auto& adapter : session.model().adapters) {
    if (whole) break;
    if (name == "model") name = adapter->kind();  // groups and a LoRA: focus.h5 holds both
    adapter->write_beside(folder, session.config().base);
  }
  auto path = folder / (name + ".h5");
  StoreWriter store(path, whole ? "model" : "adapter");
  store.text("/config.yaml", dump_config(session.config()));
  store.attribute("/train", "step", session.steps());
  write_trained(store, session);
  store.commit();
  return path;
}

}  // namespace focus
