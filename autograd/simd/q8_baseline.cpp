#define FOCUS_SIMD_NAME "baseline"
#define FOCUS_SIMD_BYTES 16
#define FOCUS_SIMD_KERNELS baseline_q8_kernels
#include "autograd/simd/q8.inc"
