#!/usr/bin/env bash
# Builds every fuzz target with clang and runs each for that many seconds (20), as many at once as
# there are cores. `bash tests/fuzz/run.sh 600 recipe store` runs two of them for ten minutes. What
# breaks a loader is left in out/fuzz/<target>/; put it under seeds/ when it is mended. With
# FOCUS_FUZZ_SEED every run takes the same way; without, each one another.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=${1:-20}
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for seeds in tests/fuzz/seeds/*/; do targets+=("$(basename "$seeds")"); done
fi
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz

fuzz_one() {
  local name=$1 out=out/fuzz/$1 dictionary=()
  mkdir -p "$out/corpus"
  [ ! -f "tests/fuzz/$name.dict" ] || dictionary=("-dict=tests/fuzz/$name.dict")
  # Time and memory of one input: 10 s where the loaders take milliseconds, 256 MiB at once (the
  # harness counts what the loaders take themselves against the input's size).
  if ASAN_OPTIONS=quarantine_size_mb=32 OMP_NUM_THREADS=1 "build/fuzz/fuzz_$name" \
    "$out/corpus" "tests/fuzz/seeds/$name" "-max_total_time=$seconds" \
    "-seed=${FOCUS_FUZZ_SEED:-0}" -timeout=10 -rss_limit_mb=2048 \
    -malloc_limit_mb=256 -max_len=65536 -print_final_stats=1 "${dictionary[@]}" \
    "-artifact_prefix=$out/" >"$out/log" 2>&1; then
    printf '%-18s %9s runs, coverage %s\n' "$name" \
      "$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/log")" \
      "$(grep -o 'cov: [0-9]*' "$out/log" | tail -1 | cut -d' ' -f2)"
  else
    tail -40 "$out/log" >&2
    echo "$name: FAILED, see $out" >&2
    return 1
  fi
}
export -f fuzz_one
export seconds
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz_one {}'
