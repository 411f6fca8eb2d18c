#define FOCUS_SIMD_NAME "avx512_vnni"
#define FOCUS_SIMD_BYTES 64
#define FOCUS_SIMD_VNNI
#define FOCUS_SIMD_KERNELS avx512_vnni_block_kernels
#include "autograd/simd/blocks.inc"
