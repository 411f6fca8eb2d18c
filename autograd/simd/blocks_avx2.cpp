#define FOCUS_SIMD_NAME "avx2"
#define FOCUS_SIMD_BYTES 32
#define FOCUS_SIMD_KERNELS avx2_block_kernels
#include "autograd/simd/blocks.inc"
