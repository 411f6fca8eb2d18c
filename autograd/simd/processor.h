#pragma once

namespace focus::simd {

/// Instruction sets that kernels are compiled for and this process may use.
struct Instructions {
  bool avx2 = false, avx512 = false;
  // On top of AVX-512:
  bool vnni = false, bf16 = false;
  bool amx_bf16 = false;  // with bf16
  /// Operands are rounded to bf16 where asked, also where that makes products no faster.
  bool always_bf16 = false;
};

/// What the environment variable FOCUS_SIMD leaves of `all`. Its value is words with commas between
/// them: at most one of baseline, avx2 and avx512, which is the highest level to use, and any of
/// no-vnni, no-bf16, no-amx and always-bf16. Throws std::runtime_error for other words and for a
/// level that `all` does not have.
Instructions selected(Instructions all, const char* words);
/// Those of this processor, as FOCUS_SIMD selects. Throws as selected() does: programs call it, or
/// kernels(), once before they start threads.
const Instructions& instructions();

}  // namespace focus::simd
