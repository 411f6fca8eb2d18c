#include "focus/models/model_files.h"

namespace focus {
namespace {

/// The checksum of the settings. Where a text begins and ends, how long it may be and how weights
/// were initialised do not make another base.
Checksum start_fingerprint(const ModelConfig& config) {
  ModelConfig forward = config;
  forward.bos_token_id.reset();
  forward.eos_token_ids.clear();
  forward.initializer_range = ModelConfig{}.initializer_range;
  forward.max_position_embeddings = 0;
  Checksum checksum;
  checksum.update(write_model_config(forward));
  return checksum;
}

}  // namespace

ModelReading::ModelReading(const ModelConfig& config) : checksum_(start_fingerprint(config)) {}

void ModelReading::begin(const StoredParameter& p) {
  published_ = p.published;
  checksum_.update(p.name);
  model_.parameters += p.shape.size();
  model_.types.insert(name_of(p.info->dtype));
}

void ModelReading::take(std::span<const Real> numbers) {
  checksum_.update(std::as_bytes(numbers));
  model_.nonfinite.look_at(published_, numbers);
}

ReadModel ModelReading::finish() {
  model_.fingerprint = checksum_.hex();
  return std::move(model_);
}

ReadModel read_model(const ModelFiles& files) {
  ModelReading reading(files.config);
  for_each_stored(files.config, *files.weights, [&](const StoredParameter& p) {
    reading.begin(p);
    p.for_each_block([&](std::span<const Real> numbers) { reading.take(numbers); });
  });
  return reading.finish();
}

ReadModel stream_model(const ModelFiles& files, Dtype dtype, const PublishedFunction& f) {
  ModelReading reading(files.config);
  Publisher<Tensor> publisher(files.config, f);
  for_each_stored(files.config, *files.weights, [&](const StoredParameter& p) {
    Tensor numbers(p.shape);
    p.read(numbers);
    if (dtype != kRealDtype) round_to(dtype, numbers.span());
    reading.begin(p);
    reading.take(numbers.span());
    publisher.add(p.name, numbers);
  });
  return reading.finish();
}

std::string fingerprint_of(const ModelFiles& files) {
  if (!files.stored_fingerprint.empty()) return files.stored_fingerprint;
  // The twin with double numbers notes none.
  const std::filesystem::path notes =
      kRealDtype == Dtype::f32 ? cache_folder() : std::filesystem::path();
  // Another version of this program may read the same config.json as other settings.
  const std::string head = start_fingerprint(files.config).hex() + ": ";
  const auto note = recall_note(notes, files.identity);
  if (note && note->starts_with(head)) return note->substr(head.size());
  const std::string fingerprint = read_model(files).fingerprint;
  // A file that was replaced meanwhile has another one.
  std::vector<FileIdentity> now;
  for (const FileIdentity& file : files.identity) now.push_back(identity_of(file.path));
  if (now == files.identity) keep_note(notes, files.identity, head + fingerprint);
  return fingerprint;
}

std::string model_fingerprint(Decoder& decoder) {
  Checksum checksum = start_fingerprint(decoder.config());
  for_each_parameter(decoder, [&](const std::string& name, Variable& p) {
    checksum.update(name);
    checksum.update(std::as_bytes(p.value().span()));
  });
  return checksum.hex();
}

}  // namespace focus
