#!/usr/bin/env bash
# Trains the bases of the study from scratch, for which distant tokens matter: `bash bench/bases.sh DATA [b1]`.
# DATA holds models/novels-gpt2 (its tokenizer) and text/novels19. Hours on 2 cores; stopped and run again, it
# goes on where it was. Texts and models go to out/bases.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data=$(realpath "${1:?wanted: the folder of models/ and text/}")
shift
parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then parts=(b1); fi
focus=${FOCUS:-build/release/focus}
out=out/bases
texts=$out/texts
novels=$data/text/novels19
mkdir -p "$texts"

# corpus NAME OPTION...
corpus() {
  if [ ! -f "$texts/$1.txt" ]; then
    "$focus" corpus --out "$texts/$1.partial" "${@:2}"
    mv "$texts/$1.partial" "$texts/$1.txt"
  fi
}

# stage RECIPE TRAIN: goes on where a run was stopped.
stage() {
  local name resume=()
  name=$(basename "$1" .yaml)
  if [ -f "$out/$name/model.h5" ]; then return; fi
  if [ -d "$out/$name/checkpoints" ]; then resume=(--resume); fi
  "$focus" train "$1" "${resume[@]}" "tokenizer=$data/models/novels-gpt2/tokenizer.json" "data.train=[$2]" \
    "data.valid=[$novels/valid]" "data.cache_dir=$out/cache"
}

for part in "${parts[@]}"; do
  case $part in
    b1)
      # Of 4.1 million tokens 1.4, each document shorter than a window.
      corpus short_recall --kind recall --keys 2,3,4,8,16 --asked 3 --distance 0,64 --documents 7000 --seed 11
      corpus short_copy --kind copy --keys 4,8,14 --distance 0,64 --documents 5000 --seed 12
      corpus short_lookup --kind lookup --keys 3,6 --distance 0,64 --documents 3000 --seed 13
      # A tenth of as many tokens as the novels have, 10.3 million.
      corpus recall --kind recall --keys 8,16,26,64 --asked 2 --distance 0,256,1000,2000 --documents 900 --seed 21
      corpus copy --kind copy --keys 10,20,40,80 --distance 0,256,1000,2000 --documents 600 --seed 22
      corpus lookup --kind lookup --keys 8,16,24 --distance 0,256,1000,2000 --documents 400 --seed 23
      corpus tales --documents 300 --seed 24
      # The short stage reads as much of the novels as of these: a sixth of the novels.
      sixth=$(find "$novels/train" -name '*.xz' | sort | awk 'NR % 6 == 1' | paste -sd, -)
      stage configs/study/b1_short.yaml "$texts/short_recall.txt, $texts/short_copy.txt, $texts/short_lookup.txt, $sixth"
      stage configs/study/b1.yaml \
        "$novels/train, $texts/recall.txt, $texts/copy.txt, $texts/lookup.txt, $texts/tales.txt"
      ;;
    *)
      echo "bases.sh: $part is not b1" >&2
      exit 2
      ;;
  esac
done
