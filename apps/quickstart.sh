#!/usr/bin/env bash
# From a clean clone to the main job: installs packages, builds, writes the built-in text, trains a
# small model on it from scratch, adds two kinds of groups to the frozen result, and compares dense
# attention, windows, soft and hard attention and summary tokens: on all tokens and on words to be
# copied. At most ten minutes on two cores; a second run starts from the beginning.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. apps/packages.sh

install_packages
# A build that is there keeps its settings, and with them its tests; a new one is without.
settings=()
[ -f build/release/CMakeCache.txt ] || settings=(-DFOCUS_TESTS=OFF)
cmake --preset release "${settings[@]}" >/dev/null
cmake --build --preset release --target focus_program

out=out/quickstart
focus=build/release/focus
rm -rf "$out"
mkdir -p "$out"
# First only words to be copied, until the base has learnt copying; then tales among them.
"$focus" corpus --out "$out/words.txt" --kind copy --keys 12 --distance 0 --documents 12800 --seed 1
mixed=(--kind copy --keys 12 --distance 0 --share 0.97)
"$focus" corpus --out "$out/mixed.txt" "${mixed[@]}" --documents 7500 --seed 3
"$focus" corpus --out "$out/unseen.txt" "${mixed[@]}" --documents 300 --seed 2 --separator ""
"$focus" train configs/quickstart/base.yaml
"$focus" train configs/quickstart/focus.yaml
"$focus" fit "$out/base/model.h5" --text "$out/mixed.txt" --out "$out/keys.h5" --context 256 \
  --num-groups 8 --local-window 32 --block 8
measure=(--text "$out/unseen.txt" --context 256 --stride 128
  --recall copy:keys=12:distance=0:documents=40)
"$focus" eval "$out/base/model.h5" --adapter "$out/focus/focus.h5" "${measure[@]}" \
  --attention dense,local,sink_window:32:sinks=1,soft,hard:1,hard:2 --json "$out/tokens.json"
"$focus" eval "$out/base/model.h5" --adapter "$out/keys.h5" "${measure[@]}" \
  --attention dense,summary:1,summary:2,summary:4 --json "$out/keys.json"
"$focus" report --title "Long-range recall: dense and sparse attention compared" \
  --eval "$out/tokens.json" --eval "$out/keys.json" \
  --run "$out/base" --run "$out/focus" --out "$out/report.html"
