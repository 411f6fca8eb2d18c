#define FOCUS_SIMD_NAME "avx2"
#define FOCUS_SIMD_BYTES 32
#define FOCUS_SIMD_PANEL 2
#define FOCUS_SIMD_KERNELS avx2_kernels
#include "autograd/simd/kernels.inc"
