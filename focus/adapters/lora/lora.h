#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "autograd/base/random.h"
#include "data/tensors/tensor_source.h"
#include "focus/adapter.h"
#include "layers/weights.h"

namespace focus {

inline constexpr const char* kPeftConfig = "adapter_config.json";
inline constexpr const char* kPeftWeights = "adapter_model.safetensors";

/// Low-rank adapters (Hu et al. 2021) as PEFT names them.
struct LoraConfig {
  std::vector<std::string> target_modules = {"all-linear"};
  int r = 8;
  double alpha = 16;
  double dropout = 0;
  bool rslora = false;

  template <class F>
  void visit(F&& f) {
    f("target_modules", target_modules,
      "linear layers to adapt, by the end of their published name, such as q_proj, v_proj, c_attn; "
      "all-linear: all of them");
    f("r", r, "rank");
    f("alpha", alpha, "B A x is scaled by alpha / r");
    f("dropout", dropout, "dropout of the adapters' inputs in training");
    f("rslora", rslora, "scale by alpha / sqrt(r) (rsLoRA, Kalajdzievski 2023)");
  }
  double scaling() const;
  /// Throws std::invalid_argument naming the key that is out of range.
  void validate() const;
};

/// PEFT's name of matrix "A" or "B" of a module.
std::string peft_name(const std::string& module, const char* matrix);

/// The adapter of one published linear: y += scaling B A dropout(x).
struct LoraLinear {
  Variable a;               // [r, in]
  std::vector<Variable> b;  // [out, r] of each part of the linear; they share A, as in PEFT
  void visit(auto&& f) {
    f("a", a);
    f("b", b);
  }
};

/// LoRA on a decoder's linears. It changes nothing until it is trained: B = 0.
class LoraModel : public Adapter {
 public:
  /// A as PEFT starts it: uniform in +-1/sqrt(in). Throws std::invalid_argument where a target is
  /// not the end of any linear's name, with the names there are. The decoder must outlive this.
  LoraModel(LoraConfig config, Decoder& decoder, Rng& rng);
  ~LoraModel() override { detach(); }

  const LoraConfig& config() const { return config_; }

  std::string_view kind() const override { return "lora"; }
  /// Adds to the decoder's linears. Their inputs are dropped in a training pass
  /// (ForwardContext::dropout_key). Throws std::invalid_argument for another decoder than it was
  /// made for.
  void attach(Decoder& decoder) override;
  void detach() override;
  /// Folds it into the decoder's weights, which must be float32: W += scaling B A; and takes it
  /// off.
  void merge();

  void visit_parameters(const std::function<void(const std::string&, Variable&)>& f) override;
  void set_trainable(bool wanted) override { set_requires_grad(*this, wanted); }
  /// Whether that parameter of visit_parameters() is of a matrix B.
  static bool is_of_b(std::string_view name) {
    return name.starts_with("lora.") && name.find(".b") != name.npos;
  }

  /// PEFT's adapter_config.json and adapter_model.safetensors, into a folder that is there; `base`
  /// is the name of the base in the config. Each appears whole or not at all, the config last:
  /// without it there is no adapter.
  void write_beside(const std::filesystem::path& folder, const std::string& base) const override;
  /// Settings, matrices under their PEFT names and the base's fingerprint in /lora.
  void write(StoreWriter& store, const std::string& base_fingerprint) override;
  void restore(const StoreReader& store) override;
  void start_from(Adapter& other, const std::string& where) override;

  /// Name and tensor of every parameter as in PEFT's adapter_model.safetensors. `select` says what
  /// of a parameter is meant: its value, its gradient.
  using Tensors = std::vector<std::pair<std::string, Tensor>>;
  Tensors tensors(const std::function<Tensor(const Variable&)>& select = [](const Variable& p) {
    return p.value();
  }) const;
  /// Calls f(linear, its adapter) for each, in order.
  void for_each_linear(
      const std::function<void(const PublishedLinear&, const LoraLinear&)>& f) const;
  /// Overwrites the values with those of such a file, or of tensors from `where`. Throws
  /// std::runtime_error naming the tensor that is missing, unknown or of another shape.
  void load(const TensorSource& source);
  void load(const std::map<std::string, Tensor>& tensors, const std::string& where);
  /// Whether PEFT needs to know that the weights are stored [in, out] (GPT-2's Conv1D).
  bool fan_in_fan_out() const {
    return std::ranges::any_of(targets_, &PublishedLinear::transposed);
  }

  void visit(auto&& f) { f("linears", linears_); }

 private:
  LoraConfig config_;
  const Decoder& decoder_;
  std::vector<PublishedLinear> targets_;
  std::vector<LoraLinear> linears_;  // one for each target
  bool attached_ = false;
};

/// While it lives the LoRA, where there is one, adds nothing: the decoder is the base.
class WithoutLora {
 public:
  WithoutLora(LoraModel* lora, Decoder& decoder) : lora_(lora), decoder_(decoder) {
    if (lora_ != nullptr) lora_->detach();
  }
  WithoutLora(const WithoutLora&) = delete;
  WithoutLora& operator=(const WithoutLora&) = delete;
  ~WithoutLora() {
    if (lora_ != nullptr) lora_->attach(decoder_);
  }

 private:
  LoraModel* lora_;
  Decoder& decoder_;
};

/// A LoRA in files that name no base: it fits every model that has its linears.
SavedAdapter saved_lora(const std::filesystem::path& path,
                        std::unique_ptr<LoraModel> (*read)(const std::filesystem::path& path,
                                                           Decoder& decoder));
/// Numbers that a store's LoRA holds.
Index count_lora_parameters(const StoreReader& store);

// ---- PEFT's files: a folder of adapter_config.json and adapter_model.safetensors ----------------

/// What an adapter_config.json says. Throws std::runtime_error or std::invalid_argument naming file
/// and key: whatever changes the mathematics and is not supported is refused.
LoraConfig parse_peft_config(const std::string& json, const std::string& where);
/// Reads the folder for this decoder; not attached yet.
std::unique_ptr<LoraModel> read_peft_adapter(const std::filesystem::path& folder, Decoder& decoder);

// ---- a GGUF file, as llama.cpp's --lora takes it ------------------------------------------------

/// True for a GGUF file that says that it is an adapter.
bool is_gguf_adapter(const std::filesystem::path& path);
/// Reads it for this decoder, whose architecture and shapes it must have; not attached yet. Of each
/// matrix that it adds to it has a pair NAME.weight.lora_a [rank, in] and NAME.weight.lora_b [out,
/// rank], rows in the file's own order. Throws std::runtime_error naming what is wrong: another
/// kind of adapter, half of a pair, a matrix that is not one of the decoder's linears, different
/// ranks. Those of norms are ignored, as llama.cpp does.
std::unique_ptr<LoraModel> read_gguf_adapter(const std::filesystem::path& path, Decoder& decoder);

}  // namespace focus
