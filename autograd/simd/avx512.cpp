#define FOCUS_SIMD_NAME "avx512"
#define FOCUS_SIMD_BYTES 64
#define FOCUS_SIMD_PANEL 4
#define FOCUS_SIMD_KERNELS avx512_kernels
#include "autograd/simd/kernels.inc"
