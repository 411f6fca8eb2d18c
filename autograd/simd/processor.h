#pragma once

namespace focus::simd {

/// Whether the processor has what kernels for these instruction sets are compiled for, and the
/// environment variable FOCUS_KERNELS lets them be used: it names the last of baseline, avx2,
/// avx512, avx512_vnni, avx512_bf16 and amx that this process takes the processor to have. They
/// throw std::runtime_error where it names another.
bool has_avx2();
bool has_avx512();
bool has_avx512_bf16();
bool has_avx512_vnni();

/// Tile instructions of AMX; the values are the bits of cpuid's leaf 7, EDX.
enum class TileProducts : unsigned { bf16 = 1u << 22, int8 = 1u << 25 };
/// Whether the processor has tiles and these products of them, the system saves them and lets this
/// process use them: without its permission their first instruction would end the process.
bool may_use_tiles(TileProducts products);

}  // namespace focus::simd
