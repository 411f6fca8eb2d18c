#define FOCUS_SIMD_NAME "avx512"
#define FOCUS_SIMD_BYTES 64
#define FOCUS_SIMD_KERNELS avx512_block_kernels
#include "autograd/simd/blocks.inc"
