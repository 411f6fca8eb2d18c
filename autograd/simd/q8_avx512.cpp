#define FOCUS_SIMD_NAME "avx512"
#define FOCUS_SIMD_BYTES 64
#define FOCUS_SIMD_KERNELS avx512_q8_kernels
#include "autograd/simd/q8.inc"
