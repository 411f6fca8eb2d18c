#!/usr/bin/env bash
# `bash tests/reliability/tsan.sh`: clang's thread sanitizer over training by every method, evaluation of every
# attention, generation, the C interface and what else computes on several threads, models of 3 layers of 64, three threads. GCC's
# libgomp tells the sanitizer nothing of its barriers, so everything would be a race; clang's libomp does, by way of
# Archer. A program with a race in it must be found out first. Any race ends the script.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
home=$PWD
cmake --preset tsan -DFOCUS_TESTS=ON >/dev/null
cmake --build --preset tsan --target focus c_interface_tests
program=$PWD/build/tsan/focus
archer=$(find /usr/lib/llvm-*/lib -name libarcher.so | tail -1)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMP_TOOL_LIBRARIES=$archer TSAN_OPTIONS="ignore_noninstrumented_modules=1 exitcode=66" OMP_NUM_THREADS=3
export GOMP_SPINCOUNT=1 XDG_CACHE_HOME=$folder/cache

cat >race.cpp <<'CPP'
#include <cstdio>
int main() {
  int n = 0;
#pragma omp parallel for schedule(dynamic)
  for (int i = 0; i < 10000; ++i) n += i;
  std::printf("%d\n", n);
}
CPP
clang++ -fsanitize=thread -fopenmp race.cpp -o race
if ./race >out 2>&1; then
  echo "tsan.sh: a race stayed unseen: is libarcher.so there ($archer)?" >&2
  exit 1
fi

commands=0
passes() {
  "$@" >out 2>&1 || {
    tail -60 out
    echo "$*: FAILED"
    exit 1
  }
  commands=$((commands + 1))
}
checked() { passes "$program" "$@"; }
# train OUT KEY=VALUE...
train() { checked train "out=$1" "${@:2}"; }

"$program" corpus --out text.txt --documents 60 >out 2>&1
run=(data.train=text.txt data.valid=text.txt data.context=96 data.batch=3 eval_windows=3 eval_every=2
  checkpoint_every=2 log_every=1)
new=(method=scratch tokenizer=bytes model.hidden_size=64 model.num_hidden_layers=3 "${run[@]}")
train base steps=4 "${new[@]}"
train bf16 steps=3 precision=bf16 "${new[@]}"
train gemma2 steps=3 model.model_type=gemma2 model.sliding_window=8 "${new[@]}"
train gpt2 steps=3 model.model_type=gpt2 model.dropout=0.1 "${new[@]}"
for attention in focus window:8 sink_window random_groups performer routing_transformer; do
  train "${attention%:*}" steps=2 "attention=$attention" "${new[@]}"
done
on=(base=base/model.h5 focus.local_window=8 "${run[@]}")
hidden=(focus.grouping=tokens focus.training=soft)
keys=(focus.grouping=keys focus.training=summary focus.num_groups=6)
train tokens steps=4 "${hidden[@]}" "${on[@]}" --stop-at 2
train tokens steps=4 "${hidden[@]}" "${on[@]}" --resume
train logit steps=3 "${hidden[@]}" focus.tokens.gate=logit focus.tokens.balance=sequence "${on[@]}"
train summary steps=3 "${keys[@]}" "${on[@]}"
train kl steps=3 "${keys[@]}" focus.objective=logit_distillation "${on[@]}"
train lora steps=3 method=lora "${on[@]}"
train full steps=3 method=full activation_checkpointing=true "${on[@]}"
train two_phase steps=4 method=two_phase two_phase.phase1_steps=2 "${on[@]}"
train indexer steps=3 attention=indexer "${on[@]}"
checked fit base/model.h5 --text text.txt --tokens 600 --context 96 --num-groups 6 --local-window 8 --block 8 --out keys.h5
some=(--text text.txt --max-tokens 400)
checked eval base/model.h5 --adapter tokens/focus.h5 "${some[@]}" --attention dense,soft,hard:1,hard:2:gate=keep \
  --against dense
baselines=dense,window:8,sink_window:8,random_groups:3,quest:2:page_size=4,moba:2:block_size=8,sparq:8
baselines+=,magicpig:4:tables=4,oracle:4,performer:8,summary:2,summary:1:unselected_groups=drop
checked eval base/model.h5 --adapter keys.h5 "${some[@]}" --attention "$baselines" --recall recall:keys=2:documents=3 \
  --beyond-positions
for precision in bf16 q8; do
  checked eval base/model.h5 "${some[@]}" --precision "$precision"
done
for how in dense hard:1 summary:1; do
  adapter=()
  if [ $how = hard:1 ]; then adapter=(--adapter tokens/focus.h5); fi
  if [ $how = summary:1 ]; then adapter=(--adapter keys.h5); fi
  checked generate base/model.h5 "${adapter[@]}" --attention $how --prompt Once --max-new-tokens 40
done
checked groups base/model.h5 --adapter tokens/focus.h5 "${some[@]}" --out groups
checked speed --lengths 256,512 --heads 2 --backward --repeats 1
passes "$home/build/tsan/c_interface_tests"
passes python3 "$home/tests/apps/server/clients.py" "$program" "${FOCUS_CLIENT_SECONDS:-60}"
echo "no race in $commands commands"
