#!/usr/bin/env bash
# From a clean clone to the main job: installs packages, builds, writes the built-in text, trains a
# small model on it from scratch, retrofits centroids onto the frozen result, and compares dense,
# soft and hard attention, on all tokens and on those that far text makes easier. At most ten
# minutes on two cores; run again, it starts anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. apps/packages.sh

install_packages
# Another compiler's warnings are no reader's errors.
cmake --preset release -DFOCUS_TESTS=OFF -DFOCUS_WERROR=OFF >/dev/null
cmake --build --preset release --target focus_program

out=out/quickstart
focus=build/release/focus
rm -rf "$out"
mkdir -p "$out"
"$focus" corpus --out "$out/tales.txt" --documents 1500 --seed 1
"$focus" corpus --out "$out/unseen.txt" --documents 40 --seed 2 --separator ""
"$focus" train configs/quickstart/base.yaml
"$focus" train configs/quickstart/focus.yaml
"$focus" eval "$out/base/model.h5" --adapter "$out/focus/focus.h5" --text "$out/unseen.txt" \
  --context 512 --stride 256 --attention dense,local,focus --far 64 --json "$out/eval.json"
"$focus" report --title "Focus on the built-in tales" --eval "$out/eval.json" \
  --run "$out/base" --run "$out/focus" --out "$out/report.html"
