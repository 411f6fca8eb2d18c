#!/usr/bin/env bash
# Runs all tests of the release build once for each kind of processor that this one can stand in for,
# from the least up to the one before its own: `bash tests/kernels.sh`, after tests/run.sh; CI's
# nightly run. `bash tests/kernels.sh avx2` takes one kind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

has() { grep -qw "$1" /proc/cpuinfo; }
kinds=(baseline)
for kind in avx2 avx512 avx512_vnni avx512_bf16 amx; do
  case $kind in
    avx512) flag=avx512bw ;;
    amx) flag=amx_tile ;;
    *) flag=$kind ;;
  esac
  if has "$flag"; then kinds+=("$kind"); fi
done
own=${kinds[-1]}
unset 'kinds[-1]'
if [ $# -gt 0 ]; then kinds=("$@"); fi
for kind in "${kinds[@]}"; do
  echo "== $kind, on a processor with $own"
  FOCUS_KERNELS=$kind ctest --preset release --parallel "$(nproc)"
done
