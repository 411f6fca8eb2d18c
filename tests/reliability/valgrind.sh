#!/usr/bin/env bash
# `bash tests/reliability/valgrind.sh build/release/focus`: Valgrind over a model of 8 numbers a
# token, ten steps of a retrofit that is stopped and resumed, and what is done with what comes of it.
# Valgrind knows no AVX-512 and says so to the program, which then takes its AVX2 kernels. Any error
# of memory, any value used that nobody set, and any block of memory that is lost ends the script.
set -euo pipefail
program=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export OMP_NUM_THREADS=1 GOMP_SPINCOUNT=10000 XDG_CACHE_HOME=$folder/cache

checked() {
  valgrind -q --error-exitcode=99 --leak-check=full --show-leak-kinds=definite \
    --errors-for-leak-kinds=definite "$program" "$@" >out 2>&1 || {
    cat out
    echo "focus $1: FAILED"
    exit 1
  }
  echo "focus $1: no error"
}

"$program" corpus --out corpus.txt --documents 1 >/dev/null
head -c 1500 corpus.txt >text.txt
keys=(data.train=text.txt data.valid=text.txt data.context=64 eval_windows=1 log_every=1
  focus.num_groups=2 focus.tokens.routing_dim=2 focus.local_window=8 eval_every=5 checkpoint_every=5)
checked train method=scratch tokenizer=bytes model.hidden_size=8 model.num_attention_heads=2 \
  model.num_hidden_layers=2 steps=2 out=base "${keys[@]}"
checked train base=base/model.h5 steps=10 out=run "${keys[@]}" --stop-at 5
checked train base=base/model.h5 steps=10 out=run "${keys[@]}" --resume
checked train base=base/model.h5 steps=3 out=keys focus.grouping=keys focus.training=summary \
  "${keys[@]}"
checked eval base/model.h5 --adapter run/focus.h5 --text text.txt --context 64
checked generate base/model.h5 --adapter keys/focus.h5 --prompt "a b" --max-new-tokens 4
checked export base/model.h5 --adapter run/focus.h5 --out folder
checked import folder --out again.h5
