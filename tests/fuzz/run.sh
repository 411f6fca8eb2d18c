#!/usr/bin/env bash
# Builds every fuzz target with clang and runs as many at once as there are cores.
# `bash tests/fuzz/run.sh` tries the same inputs on every machine: a number of runs from one seed,
# some seconds of each target. `bash tests/fuzz/run.sh 600 config store` hunts: ten minutes of
# these two, each time another way, from the corpus that earlier hunts left in out/fuzz; the runs of
# all hunts, on whatever machine, are added up in tests/fuzz/counts, which is committed. `bash
# tests/fuzz/run.sh merge config` puts what of that corpus reaches anything new, in files of at most
# 2 kB, under seeds/. What breaks a loader is left in out/fuzz/<target>/; put it under seeds/ when it
# is mended.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=${1:-0}
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for seeds in tests/fuzz/seeds/*/; do targets+=("$(basename "$seeds")"); done
fi
cmake --preset fuzz -DFOCUS_WERROR=ON >/dev/null
cmake --build --preset fuzz
# Loaders that want files get them from memory.
[ ! -w /dev/shm ] || export TMPDIR=/dev/shm

# Adds the runs of a target to those of all hunts before.
count() {
  local name=$1 runs=$2 file=tests/fuzz/counts
  (
    flock 9
    touch "$file"
    awk -v name="$name" -v runs="$runs" '$1 == name { runs += $2; next } { print }
      END { printf "%s %d\n", name, runs }' "$file" | sort >out/fuzz/counts.new
    mv out/fuzz/counts.new "$file"
  ) 9>"out/fuzz/counts.lock"
}

merge_one() {
  local name=$1 small=out/fuzz/$1/small
  mkdir -p "$small"
  find "out/fuzz/$name/corpus" -type f -size -5 -exec cp -t "$small" {} +
  "build/fuzz/fuzz_$name" -merge=1 -max_len=2048 "tests/fuzz/seeds/$name" "$small" \
    >"out/fuzz/$name/merge.log" 2>&1
  rm -r "$small"
}

fuzz_one() {
  local name=$1 out=out/fuzz/$1 options=() fixed=()
  mkdir -p "$out/corpus"
  if [ "$seconds" = merge ]; then
    merge_one "$name"
    return
  fi
  [ ! -f "tests/fuzz/$name.dict" ] || options+=("-dict=tests/fuzz/$name.dict")
  if [ "$seconds" -gt 0 ]; then
    options+=("-max_total_time=$seconds" "$out/corpus" "tests/fuzz/seeds/$name")
  else
    # The order of the seeds counts, and a folder's is the file system's; so do addresses, which
    # libFuzzer meets in comparisons.
    if setarch -R true 2>/dev/null; then fixed=(setarch -R); fi
    local seeds=("tests/fuzz/seeds/$name"/*) runs
    case $name in
      compare_plan) runs=750 ;;
      config | examples) runs=1500 ;;
      metrics | focus_store) runs=2000 ;;
      store | safetensors_index | focus_folder | chat_template) runs=4000 ;;
      attention_spec | score_request) runs=8000 ;;
      gguf | tokenizer_json) runs=15000 ;;
      *) runs=30000 ;;
    esac
    options+=(-seed=1 "-runs=$runs" "-seed_inputs=$(IFS=,; echo "${seeds[*]}")")
  fi
  # Time and memory of one input: 10 s where the loaders take milliseconds, 256 MiB at once (the
  # harness counts what the loaders take themselves against the input's size).
  local status=0
  ASAN_OPTIONS=quarantine_size_mb=32 OMP_NUM_THREADS=1 "${fixed[@]}" "build/fuzz/fuzz_$name" \
    -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=256 -max_len=65536 -print_final_stats=1 \
    "-artifact_prefix=$out/" "${options[@]}" >"$out/log" 2>&1 || status=$?
  local runs
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$out/log")
  [ "$seconds" = 0 ] || count "$name" "${runs:-0}"
  if [ "$status" -eq 0 ]; then
    printf '%-18s %9s runs, coverage %s\n' "$name" "$runs" \
      "$(grep -o 'cov: [0-9]*' "$out/log" | tail -1 | cut -d' ' -f2)"
  else
    tail -40 "$out/log" >&2
    echo "$name: FAILED, see $out" >&2
    return 1
  fi
}
export -f fuzz_one merge_one count
export seconds
printf '%s\n' "${targets[@]}" | xargs -P "${FOCUS_FUZZ_JOBS:-$(nproc)}" -I{} bash -c 'fuzz_one {}'
