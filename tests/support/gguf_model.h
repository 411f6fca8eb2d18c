#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "layers/gguf_settings.h"
#include "tests/support/compare.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_folder.h"

namespace focus {

/// The settings of a tiny model, to be changed, and what read_gguf_config makes of them.
class GgufModel {
 public:
  explicit GgufModel(std::string architecture = "llama") : architecture_(std::move(architecture)) {
    set("general.architecture",
        [this](GgufFile& f, const std::string& key) { f.text(key, architecture_); });
    const bool gpt = architecture_ == "gpt2" || architecture_ == "gptneox";
    for (const auto& [name, value] :
         std::map<std::string, std::uint32_t>{{"block_count", 2},
                                              {"embedding_length", 24},
                                              {"feed_forward_length", 40},
                                              {"context_length", 64},
                                              {"attention.head_count", 4}})
      u32(name, value);
    f32(gpt ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", 1e-5f);
    tensor("token_embd.weight", {24, 37});
  }

  using Write = std::function<void(GgufFile&, const std::string& key)>;
  GgufModel& set(const std::string& key, Write write) {
    keys_[key] = std::move(write);
    return *this;
  }
  GgufModel& u32(const std::string& name, std::uint32_t x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.u32(key, x); });
  }
  GgufModel& f32(const std::string& name, float x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.f32(key, x); });
  }
  GgufModel& flag(const std::string& name, bool x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.flag(key, x); });
  }
  GgufModel& text(const std::string& name, const std::string& x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.text(key, x); });
  }
  GgufModel& by_layer(const std::string& name, const std::vector<std::uint32_t>& x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.numbers(key, 4, x); });
  }
  GgufModel& flags(const std::string& name, const std::vector<std::uint8_t>& x) {
    return own(name, [x](GgufFile& f, const std::string& key) { f.numbers(key, 7, x); });
  }
  GgufModel& without(const std::string& name) {
    keys_.erase(architecture_ + "." + name);
    return *this;
  }
  GgufModel& tensor(const std::string& name, const std::vector<std::uint64_t>& dims,
                    std::vector<float> numbers = {}) {
    std::uint64_t size = 1;
    for (const std::uint64_t dim : dims) size *= dim;
    numbers.resize(size);
    tensors_.emplace_back(name, dims, numbers);
    return *this;
  }

  ModelConfig config() const {
    GgufFile file;
    for (const auto& [key, write] : keys_) write(file, key);
    for (const auto& [name, dims, numbers] : tensors_) file.floats(name, dims, numbers);
    const TempFolder folder;
    write_text(folder / "x.gguf", file.bytes());
    return read_gguf_config(GgufSource(folder / "x.gguf"));
  }
  std::string error() const {
    const std::string text = error_of([&] { config(); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_THAT(text, testing::AnyOf("", testing::HasSubstr("x.gguf")));
    return text;
  }

 private:
  GgufModel& own(const std::string& name, Write write) {
    return set(architecture_ + "." + name, std::move(write));
  }
  std::string architecture_;
  std::map<std::string, Write> keys_;
  std::vector<std::tuple<std::string, std::vector<std::uint64_t>, std::vector<float>>> tensors_;
};

inline void expect_refused(const GgufModel& model, const std::string& part) {
  EXPECT_THAT(model.error(), testing::HasSubstr(part));
}

}  // namespace focus
