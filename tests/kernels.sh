#!/usr/bin/env bash
# Runs all tests of the release build once for each kind of processor that this one can stand in for,
# from the least up to the one before its own: `bash tests/kernels.sh`, after tests/run.sh; CI's
# nightly run. `bash tests/kernels.sh avx2` takes one kind, a value of FOCUS_SIMD.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

has() { grep -qw "$1" /proc/cpuinfo; }
kinds=(baseline)
if has avx2; then kinds+=(avx2); fi
if has avx512bw; then kinds+=(avx512,no-vnni,no-bf16); fi
if has avx512_vnni; then kinds+=(avx512,no-bf16,no-amx); fi
if has avx512_bf16; then kinds+=(avx512,no-amx); fi
if has amx_tile; then kinds+=(avx512); fi
unset 'kinds[-1]'
if [ $# -gt 0 ]; then kinds=("$@"); fi
for kind in "${kinds[@]}"; do
  echo "== FOCUS_SIMD=$kind"
  FOCUS_SIMD=$kind ctest --preset release --parallel "$(nproc)"
done
