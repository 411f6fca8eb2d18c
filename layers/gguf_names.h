#pragma once

#include <span>
#include <string>
#include <vector>

#include "layers/family.h"

namespace focus {

/// Our modules' names in GGUF files, one table for every family. Some have two, of which the first
/// that a file holds is meant: q, k and v may be fused in one tensor, gate and up too where the
/// family fuses them.
std::span<const TensorRule> gguf_rules();

/// Every name that ours may have in a file of the model's family, the first first:
/// "blk.0.attn_q.weight", "blk.0.attn_qkv.weight".
std::vector<StoredName> names_in_gguf(const ModelConfig& config, const std::string& ours);

/// The tensor of factors by which rotary frequencies are divided, no parameter.
inline constexpr const char* kRopeFactors = "rope_freqs.weight";
/// Those of longrope, for texts within the original length and beyond it.
inline constexpr const char* kShortFactors = "rope_factors_short.weight";
inline constexpr const char* kLongFactors = "rope_factors_long.weight";
/// Whether a tensor of that name, no parameter, may be in files of that form.
bool is_rope_tensor(const GgufForm& form, const std::string& name);

/// The number that `family`'s GGUF files have added to the parameter `ours`: those of norms hold
/// what the normed numbers are multiplied by, Gemma's w + 1 too.
double added_in_gguf(const ModelConfig& config, const std::string& ours);

/// The tensor of a GGUF file that a parameter of ours is, or is a part of: what the family's own
/// files have fused is fused there too.
std::string gguf_name(const ModelConfig& config, const std::string& ours);
/// The parameter's numbers as they lie there: rows in llama's order, what is added to norms. Takes
/// any matrix with the parameter's rows.
Tensor to_gguf_order(const ModelConfig& config, const std::string& ours, const Tensor& parameter);

/// The family whose models have that architecture, of several the one that fits whether the file
/// has a window. Throws std::runtime_error naming the known ones where no family fits.
const Family& find_gguf_family(const std::string& architecture, bool has_window,
                               const std::string& where);

}  // namespace focus
