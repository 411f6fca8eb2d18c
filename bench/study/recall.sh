#!/usr/bin/env bash
# A base that answers keyed recall and copies, and its accuracy under sparse attention: `bash bench/study/recall.sh [base]
# [groups] [table]`. Texts, base and adapters go to out/recall, figures to out/study/rows/recall, the table to
# bench/study/tables. One thread; the base takes minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then parts=(base groups table); fi
focus=${FOCUS:-build/release/focus}
out=out/recall
figures=out/study/rows/recall
export OMP_NUM_THREADS=1
mkdir -p "$out/texts" "$figures"

# corpus NAME LENGTH OPTION...: documents of LENGTH bytes without separators, so that each training window is one
# document.
corpus() {
  python3 bench/study/documents.py --out "$out/texts/$1.txt" --separator "" --length "$2" "${@:3}"
}

base() {
  corpus short_recall 64 --kind recall --keys 2,3,4 --asked 4 --distance 0 --documents 30000 --seed 11
  corpus short_copy 64 --kind copy --keys 2,3,4,5 --distance 0 --documents 30000 --seed 13
  corpus longer_recall 256 --kind recall --keys 4,8,12,16 --asked 2 --distance 0,32 --documents 6000 --seed 21
  corpus longer_copy 256 --kind copy --keys 4,8,14 --distance 0,32 --documents 6000 --seed 22
  corpus far_recall 768 --kind recall --keys 4,8,16,26 --asked 2 --distance 0,64,128,256,400 --documents 2000 --seed 31
  corpus far_keys 768 --kind recall --keys 32,48,64 --distance 0,64,128 --documents 1500 --seed 32
  corpus far_copy 768 --kind copy --keys 5,8,11,14,17,20,25,30,35,40 --distance 0,32,64,128,192,256 \
    --documents 7000 --seed 33
  for stage in short longer far; do "$focus" train "bench/study/configs/recall_$stage.yaml"; done
}

# Adapters of the frozen base: groups of keys by k-means, the same after some training (both on the text of the last
# stage), and groups of tokens.
texts="data.train=[$out/texts/far_recall.txt,$out/texts/far_keys.txt,$out/texts/far_copy.txt]"
keys=("base=$out/far/model.h5" "$texts" data.valid_fraction=0 data.context=768 focus.summary.block=1
  eval_every=0 checkpoint_every=0)
# fit K SEED
fit() {
  "$focus" train configs/retrofit_keys.yaml "${keys[@]}" "focus.num_groups=$1" steps=0 "seed=$2" "out=$out/keys$1_seed$2"
}
groups() {
  local count seed m
  for count in 16 32; do
    for seed in 1 2 3; do fit "$count" "$seed"; done
  done
  fit 64 1
  for m in 0 2; do
    "$focus" train configs/retrofit_keys.yaml "${keys[@]}" "focus.summary.num_selected_groups=$m" data.batch=4 \
      "out=$out/trained_m$m"
  done
  "$focus" train configs/retrofit.yaml "base=$out/far/model.h5" "$texts" data.valid_fraction=0 \
    data.context=768 focus.num_groups=8 focus.local_window=32 focus.tokens.sequence_steps=120 steps=150 eval_every=0 \
    checkpoint_every=0 "out=$out/tokens8"
  "$focus" train configs/retrofit_keys.yaml "${keys[@]}" attention=indexer steps=400 "out=$out/indexer"
}

# The questions, on unseen documents: keys by distance, keys by number, 200 letters and spaces by distance.
questions() {
  for distance in 0 64 128 256 400; do echo "distance_$distance recall --keys 8 --distance $distance --documents 30"; done
  for keys in 4 8 16 26 64; do echo "keys_$keys recall --keys $keys --distance 128 --documents 25"; done
  for distance in 0 128 256; do echo "copy_$distance copy --keys 40 --distance $distance --documents 10"; done
}

# evaluate NAME ADAPTER|- SPEC,SPEC...: density and loss on documents like those of the table, then the answers.
evaluate() {
  local adapter=()
  if [ "$2" != - ]; then adapter=(--adapter "$2"); fi
  local model=("$out/far/model.h5" "${adapter[@]}" --attention "$3")
  "$focus" eval "${model[@]}" --text "$out/texts/unseen.txt" --context 768 --stride 768 --against dense \
    --json "$figures/$1.pairs.json"
  while read -r name question; do
    # shellcheck disable=SC2086
    python3 bench/study/documents.py --kind $question --length 768 --questions "$out/texts/$name.jsonl"
    "$focus" eval "${model[@]}" --recall "$out/texts/$name.jsonl" --json "$figures/$1.$name.json"
  done < <(questions)
}

# Attention specs of about 25 % density on such documents, found by counting pairs (pairs.py), never by an answer; the
# sizes of groups of tokens are those that training gave them.
table() {
  corpus unseen 768 --kind recall --keys 8 --distance 128 --documents 40 --seed 100
  evaluate baselines - "dense,window:95,sink_window:95,quest:9:page_size=8:local_window=16,moba:6:block_size=16,\
sparq:100,sparq:100:rank=8,oracle:75:local_window=20,random_groups:8:local_window=48,\
sink_window:41,quest:3:page_size=8:local_window=16,moba:2:block_size=16,sparq:46:rank=8,oracle:21:local_window=20,\
magicpig:6:tables=39,magicpig:6:tables=18"
  local seed
  for seed in 1 2 3; do
    evaluate "keys16_seed$seed" "$out/keys16_seed$seed/focus.h5" "summary:0:local_window=88,summary:1:local_window=57,\
summary:2:local_window=24,summary:0:local_window=34,summary:1:local_window=7"
    evaluate "keys32_seed$seed" "$out/keys32_seed$seed/focus.h5" "summary:0:local_window=79,summary:1:local_window=63,\
summary:2:local_window=42,summary:1:local_window=9"
  done
  evaluate keys64_seed1 "$out/keys64_seed1/focus.h5" "summary:0:local_window=63,summary:1:local_window=54,\
summary:2:local_window=44,summary:4:local_window=22"
  evaluate trained_m0 "$out/trained_m0/focus.h5" "summary:0:local_window=79"
  evaluate trained_m2 "$out/trained_m2/focus.h5" "summary:1:local_window=63,summary:2:local_window=42"
  evaluate indexer "$out/indexer/indexer.h5" "indexer:75:local_window=20,indexer:21:local_window=20"
  evaluate tokens8 "$out/tokens8/focus.h5" "soft,hard:1,hard:2,summary:selection=own"
  python3 bench/study/tables.py out/study/rows recall
}

for part in "${parts[@]}"; do
  case $part in
    base | groups | table) "$part" ;;
    *)
      echo "recall.sh: $part is none of base, groups, table" >&2
      exit 2
      ;;
  esac
done
