// Products by the tiles of machines with AMX: 27 times the peak of vdpbf16ps where both are
// (Emerald Rapids).
#include "autograd/simd/bf16_kernels.h"

#ifndef FOCUS_REAL_DOUBLE
#include <immintrin.h>

namespace focus::simd {
namespace {

#include "autograd/simd/tile_model.inc"
#include "autograd/simd/tile_product.inc"

// The intrinsics want the tile's number as a literal.
#define FOCUS_EACH_TILE(f)    \
  if constexpr (t == 0) f(0); \
  if constexpr (t == 1) f(1); \
  if constexpr (t == 2) f(2); \
  if constexpr (t == 3) f(3); \
  if constexpr (t == 4) f(4); \
  if constexpr (t == 5) f(5); \
  if constexpr (t == 6) f(6); \
  if constexpr (t == 7) f(7)

/// The machine's own. Its configuration belongs to the thread and is given back: tiles that are in
/// use make every change of threads dearer.
class AmxTiles {
 public:
  void configure(Index rows, Index pairs) {
    Config config{};
    config.palette = 1;
    for (int t = 0; t < 8; ++t) {
      config.rows[t] = static_cast<std::uint8_t>(t < 6 ? rows : pairs);
      config.bytes[t] = static_cast<std::uint16_t>(t == 4 || t == 5 ? 4 * pairs : 64);
    }
    settle();  // the compiler does not see what the instructions read
    _tile_loadconfig(&config);
    settle();
  }
  void release() {
    settle();
    _tile_release();
  }

  template <int t>
  void zero() {
    FOCUS_EACH_TILE(_tile_zero);
  }
  template <int t>
  void load(const void* from, Index stride) {
#define FOCUS_LOAD(i) _tile_loadd(i, from, static_cast<std::size_t>(stride))
    FOCUS_EACH_TILE(FOCUS_LOAD);
  }
  template <int t>
  void store(void* to, Index stride) {
#define FOCUS_STORE(i) _tile_stored(i, to, static_cast<std::size_t>(stride))
    FOCUS_EACH_TILE(FOCUS_STORE);
    settle();
  }
  template <int c>
  void product() {
    if constexpr (c == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (c == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (c == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (c == 3) _tile_dpbf16ps(3, 5, 7);
  }

 private:
  struct alignas(64) Config {
    std::uint8_t palette, start_row, reserved[14];
    std::uint16_t bytes[16];
    std::uint8_t rows[16];
  };
  static_assert(sizeof(Config) == 64);
  static void settle() { __asm__ volatile("" ::: "memory"); }
};

}  // namespace

extern const Bf16Kernels avx512_bf16_kernels;

// Odd sizes, so that every kind of edge is in it.
bool amx_agrees_with_its_model() {
  constexpr Index kRows = 53, kDepth = 90, kColumns = 80;
  alignas(64) static Bf16 a[kRows * kDepth], b[kDepth * kColumns];
  alignas(64) static float packed[kDepth * kColumns];
  static float by_tiles[kRows * kColumns], by_model[kRows * kColumns];
  std::uint32_t state = 1;
  const auto draw = [&](Bf16* to, Index n) {
    for (Index i = 0; i < n; ++i) {
      state = state * 1664525u + 1013904223u;
      to[i] = static_cast<Bf16>((state >> 16 & 0x80ffu) | 0x3f00u);  // 0.5 to 2, either sign
    }
  };
  draw(a, kRows * kDepth);
  draw(b, kDepth * kColumns);
  avx512_bf16_kernels.pack(b, kColumns, kDepth, kColumns, packed);
  for (int time = 0; time < 2; ++time) {
    const bool add = time > 0;
    const Bf16Panels panels{packed, kDepth, kColumns};
    tile_product<AmxTiles>(kRows, kColumns, kDepth, a, kDepth, panels, by_tiles, kColumns, add);
    tile_product<ModelTiles>(kRows, kColumns, kDepth, a, kDepth, panels, by_model, kColumns, add);
  }
  return __builtin_memcmp(by_tiles, by_model, sizeof(by_tiles)) == 0;
}

namespace {

void round(const float* source, Index n, Bf16* to) { avx512_bf16_kernels.round(source, n, to); }
void pack(const Bf16* source, Index pitch, Index depth, Index columns, void* packed) {
  avx512_bf16_kernels.pack(source, pitch, depth, columns, packed);
}
void pack_transposed(const Bf16* source, Index pitch, Index columns, Index depth, void* packed) {
  avx512_bf16_kernels.pack_transposed(source, pitch, columns, depth, packed);
}
void transpose(const Bf16* source, Index pitch, Index rows, Index cols, Bf16* to, Index to_pitch) {
  avx512_bf16_kernels.transpose(source, pitch, rows, cols, to, to_pitch);
}
void round_transposed(const float* source, Index ld, Index rows, Index cols, Bf16* to,
                      Index to_pitch) {
  avx512_bf16_kernels.round_transposed(source, ld, rows, cols, to, to_pitch);
}

}  // namespace

extern const Bf16Kernels amx_bf16_kernels;
const Bf16Kernels amx_bf16_kernels = {
    .name = "amx_bf16",
    .vector = 16,
    .pays = true,
    .three_pay = true,
    .round = round,
    .pack = pack,
    .pack_transposed = pack_transposed,
    .transpose = transpose,
    .round_transposed = round_transposed,
    .product = tile_product<AmxTiles>,
    .product_from = tile_product_from<AmxTiles>,
};

}  // namespace focus::simd
#endif
