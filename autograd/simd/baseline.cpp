#define FOCUS_SIMD_NAME "baseline"
#define FOCUS_SIMD_BYTES 16
#define FOCUS_SIMD_PANEL 2
#define FOCUS_SIMD_KERNELS baseline_kernels
#include "autograd/simd/kernels.inc"
