#define FOCUS_SIMD_NAME "avx2"
#define FOCUS_SIMD_BYTES 32
#define FOCUS_SIMD_KERNELS avx2_q8_kernels
#include "autograd/simd/q8.inc"
