#!/usr/bin/env bash
# Makes the bases of the study, for which distance matters: `bash bench/study/bases.sh DATA [b1|b1_window|b2|b2_window|b3...]`.
# Their weights are not in the repository: this trains them, 40 to 100 minutes each on two cores, or imports those that lie in
# DATA/bases/NAME (config.json and model.safetensors, verified against bases.sha256). DATA holds models/novels-gpt2 (the
# tokenizer) and text. A run that was stopped continues. `release NAME` exports trained weights in bf16. Texts and models go
# to out/bases, where finished ones stay.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

data=$(realpath "${1:?expected the folder of models/ and text/}")
shift
parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then parts=(b1 b1_window b2 b2_window b3); fi
focus=${FOCUS:-build/release/focus}
out=out/bases
texts=$out/texts
tokenizer=$data/models/novels-gpt2/tokenizer.json
novels=$data/text/novels19
checksums=$PWD/bench/study/bases.sha256
# shellcheck source=bench/study/texts.sh
. bench/study/texts.sh
mkdir -p "$texts"

# stage CONFIG NAME TRAIN [key=value...]: continues a run that was stopped.
stage() {
  local resume=()
  if [ -f "$out/$2/model.h5" ]; then return; fi
  if [ -d "$out/$2/checkpoints" ]; then resume=(--resume); fi
  "$focus" train "bench/study/configs/$1.yaml" "${resume[@]}" "out=$out/$2" "data.train=[$3]" \
    "tokenizer=$tokenizer" "data.valid=[$novels/valid]" "data.cache_dir=$out/cache" data.document_eos=false "${@:4}"
}

# imported NAME: its weights are there without training.
imported() {
  local folder=$data/bases/$1
  if [ -f "$out/$1/model.h5" ]; then return 0; fi
  if [ ! -f "$folder/model.safetensors" ]; then return 1; fi
  (cd "$data/bases" && grep " $1/" "$checksums" | sha256sum --check --quiet -)
  mkdir -p "$out/$1"
  "$focus" import "$folder" --tokenizer "$tokenizer" --out "$out/$1/model.h5"
}

# Short documents for the first stage, whose windows hold several of them.
questions echo_recall --kind recall --keys 2,3,4 --asked 4 --distance 0 --documents 12000 --seed 11
questions echo_copy --kind copy --keys 2,3,4,5 --distance 0 --documents 12000 --seed 13
# 1.4 million tokens for the second stage, each document shorter than a window.
questions short_recall --kind recall --keys 2,3,4,8,16 --asked 3 --distance 0,64 --documents 7000 --seed 11
questions short_copy --kind copy --keys 4,8,14 --distance 0,64 --documents 5000 --seed 12
questions short_lookup --kind lookup --keys 3,6 --distance 0,64 --documents 3000 --seed 13
# A tenth of the tokens of the novels, 10.3 million.
questions recall --kind recall --keys 8,16,26,64 --asked 2 --distance 0,256,1000,2000 --documents 900 --seed 21
questions copy --kind copy --keys 10,20,40,80 --distance 0,256,1000,2000 --documents 600 --seed 22
questions lookup --kind lookup --keys 8,16,24 --distance 0,256,1000,2000 --documents 400 --seed 23
corpus tales --documents 300 --seed 24
third=$(some "$short_novels")
# Passages of the novels of the first two stages, the same number of each.
echoes echo "$third" 1500 30,50,80
echoes short_echo "$third" 600 80,160,320
echo="$texts/echo.txt, $texts/echo_recall.txt, $texts/echo_copy.txt"
short="$texts/short_echo.txt, $texts/short_recall.txt, $texts/short_copy.txt, $texts/short_lookup.txt, $third"
far="$texts/recall.txt, $texts/copy.txt, $texts/lookup.txt, $texts/tales.txt"
window=(attention=window:32)

first_stages() {
  stage b1_echo b1_echo "$echo"
  stage b1_short b1_short "$short"
}

# The same for the twins, which have only a window from the first step.
first_stages_window() {
  stage b1_echo b1_window_echo "$echo" "${window[@]}"
  stage b1_short b1_window_short "$short" "base=$out/b1_window_echo/model.h5" "${window[@]}"
}

# Half of the novels, those of the first stages among them, and texts of three other kinds.
texts_of_b2() {
  head -c "$play_letters" "$data/text/tinyshakespeare/input.txt" >"$texts/shakespeare.txt"
  cp "$data/text/wikitext-2/wiki.valid.tokens" "$texts/wiki.txt"
  cp "$data/text/tinystories/train_head.txt" "$texts/stories.txt"
  b2="$(some "$half_novels"), $texts/wiki.txt, $texts/stories.txt, $texts/shakespeare.txt"
}

releasing=
for part in "${parts[@]}"; do
  if [ -n "$releasing" ]; then
    "$focus" export "$out/$part/model.h5" --out "$out/$part.published" --dtype bf16
    releasing=
    continue
  fi
  if [[ $part == b? ]] && imported "$part"; then continue; fi
  case $part in
    release) releasing=yes ;;
    b1)
      first_stages
      stage b1 b1 "$novels/train, $far"
      ;;
    b1_window)
      first_stages_window
      stage b1 b1_window "$novels/train, $far" "base=$out/b1_window_short/model.h5" "${window[@]}"
      ;;
    b2)
      first_stages
      texts_of_b2
      stage b2 b2 "$b2, $far"
      ;;
    b2_window)
      first_stages_window
      texts_of_b2
      stage b2 b2_window "$b2, $far" "base=$out/b1_window_short/model.h5" "${window[@]}"
      ;;
    b3)
      stage b3 b3 "$novels/train, $far"
      ;;
    *)
      echo "bases.sh: $part is none of release, b1, b1_window, b2, b2_window, b3" >&2
      exit 2
      ;;
  esac
done
