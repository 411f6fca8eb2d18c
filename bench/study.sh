#!/usr/bin/env bash
# Runs the study of docs/results.md: `bash bench/study.sh DATA [tinystories|wikitext|stories|scratch...]`. DATA holds
# models/novels-gpt2, models/stories260K, text/tinystories, text/wikitext-2 and text/novels19. One
# thread a run; two parts side by side take about an hour and a half on 2 cores. Without FINAL=1 only
# validation texts are read. Tables go to bench/results/study, pages to out/study.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data=$(realpath "${1:?wanted: the folder of models/ and text/}")
shift
parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then parts=(tinystories wikitext stories scratch); fi
focus=${FOCUS:-build/release/focus}
texts=out/study/texts
mkdir -p "$texts" bench/results/study

# Neither text comes with all three splits: TinyStories' validation text is cut into a half to choose
# by and one to test on, WikiText-2's validation text into one to train on and one to choose by.
python3 - "$data/text" "$texts" <<'PY'
import pathlib
import re
import sys

source, out = map(pathlib.Path, sys.argv[1:])


def cut(path, at, first, second):
    text = path.read_text(encoding="utf-8")
    place = at(text)
    (out / first).write_text(text[:place], encoding="utf-8")
    (out / second).write_text(text[place:], encoding="utf-8")


cut(source / "tinystories/valid_head.txt", lambda t: t.index("\n\n", len(t) // 2) + 2,
    "tinystories-valid.txt", "tinystories-test.txt")
# Between two articles.
cut(source / "wikitext-2/wiki.valid.tokens",
    lambda t: next(m.start() + 1 for m in re.finditer(r"\n = [^=].* = \n", t) if m.start() > 0.83 * len(t)),
    "wikitext-train.txt", "wikitext-valid.txt")
PY

# run PART RECIPE TITLE TRAIN VALID TEST [key=value...]
run() {
  local part=$1 recipe=$2 final=()
  if [ "${FINAL:-0}" = 1 ]; then final=(--final); fi
  OMP_NUM_THREADS=1 "$focus" compare "configs/study/$recipe.yaml" "${final[@]}" "out=out/study/$part" \
    "title=$3" "data.train=[$4]" "data.valid=[$5]" "eval.valid=[$5]" "eval.test=[$6]" "${@:7}"
  # Texts by their place in DATA, wherever that lies.
  sed "s#$data/##g" "out/study/$part/compare.jsonl" >"bench/results/study/$part.jsonl"
  python3 bench/study_tables.py
}

novels=$data/text/novels19
for part in "${parts[@]}"; do
  case $part in
    tinystories)
      run "$part" retrofit "novels-gpt2 on TinyStories" "$data/text/tinystories/train_head.txt" \
        "$texts/tinystories-valid.txt" "$texts/tinystories-test.txt" "base=$data/models/novels-gpt2"
      ;;
    wikitext)
      run "$part" retrofit "novels-gpt2 on WikiText-2" "$texts/wikitext-train.txt" \
        "$texts/wikitext-valid.txt" "$data/text/wikitext-2/wiki.test.tokens" \
        "base=$data/models/novels-gpt2" eval.max_tokens=15000 \
        "eval.attentions=[dense,local,soft,hard:1,hard:2,trained]"  # k=3 and 4 attend all pairs
      ;;
    stories)
      run "$part" retrofit "stories260K on novels" "$novels/train" \
        "$novels/valid/Burnett_Garden_1911.txt.xz" "$novels/test/Stevenson_Treasure_1883.txt.xz" \
        "base=$data/models/stories260K"
      ;;
    scratch)
      run "$part" scratch "From scratch on novels" "$novels/train" \
        "$novels/valid/Burnett_Garden_1911.txt.xz" "$novels/test/Stevenson_Treasure_1883.txt.xz" \
        "tokenizer=$data/models/novels-gpt2"
      ;;
    *)
      echo "study.sh: $part: wanted tinystories, wikitext, stories or scratch" >&2
      exit 2
      ;;
  esac
done
