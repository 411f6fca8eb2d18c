#!/usr/bin/env bash
# Measures the program and its peers in one go on this machine: `bash bench/run.sh [what...]
# [--quick]`, where what is dense, dense_bf16, linear_int8, soft, hard, summary, step, scratch,
# eval, prompts, decoding, sparse_real, tokenizers, gemm (all if none; --help says more). Builds first; records
# go to bench/results. FOCUS_PEERS_PYTHON names an interpreter that has PyTorch, transformers (and with
# it tokenizers) and peft; without it they are installed into bench/.venv. --compare shows each time
# beside that of the newest row before it on the same kind of processor.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. apps/packages.sh

install_packages bench
cmake --preset bench >/dev/null
cmake --build --preset bench --target focus_program focus_bench gemm_peers
exec python3 bench/measure.py "$@"
