#!/usr/bin/env bash
# Runs the comparison at equal pairs of docs/results.md: `bash bench/equal_pairs.sh DATA [novels|layers|tinystories|long|stories...]`.
# DATA holds models/novels-gpt2, models/stories260K, text/novels19 and text/tinystories. One thread a run;
# what is done is not done again. Pages go to out/equal_pairs, rows to bench/results/equal_pairs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data=$(realpath "${1:?wanted: the folder of models/ and text/}")
shift
parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then parts=(novels layers tinystories long stories); fi
focus=${FOCUS:-build/release/focus}
novels=$data/text/novels19
stories=$data/text/tinystories
texts=out/equal_pairs/texts
mkdir -p bench/results/equal_pairs "$texts"
# TinyStories' training text is cut into what is fitted and trained on and what is validated on. Nothing is
# chosen by validation here, so a beginning of it is enough.
python3 - "$stories/train_head.txt" "$novels/valid/Conrad_Almayer_1895.txt.xz" "$texts" <<'PY'
import lzma
import pathlib
import sys

stories, novel, out = (pathlib.Path(name) for name in sys.argv[1:])
text = stories.read_text(encoding="utf-8")
place = text.index("\n\n", len(text) * 4 // 5) + 2
(out / "stories-train.txt").write_text(text[:place], encoding="utf-8")
(out / "stories-valid.txt").write_text(text[place : place + 12000], encoding="utf-8")
(out / "novel-valid.txt").write_text(lzma.open(novel, "rt", encoding="utf-8").read(40000), encoding="utf-8")
PY

# run PART RECIPE TITLE BASE TRAIN VALID TEST [key=value...]
run() {
  OMP_NUM_THREADS=1 "$focus" compare "configs/study/$2.yaml" --final "out=out/equal_pairs/$1" "title=$3" \
    "base=$data/models/$4" "data.train=[$5]" "data.valid=[$6]" "eval.valid=[$6]" "eval.test=[$7]" "${@:8}"
  # Texts by their place in DATA, wherever that lies.
  sed "s#$data/##g" "out/equal_pairs/$1/compare.jsonl" >"bench/results/equal_pairs/$1.jsonl"
  python3 bench/equal_pairs_tables.py
}

for part in "${parts[@]}"; do
  case $part in
    novels)
      run novels equal_pairs "Equal pairs: novels-gpt2, two unseen novels, context 512" novels-gpt2 "$novels/train" \
        "$texts/novel-valid.txt" \
        "$novels/test/Doyle_Hound_1902.txt.xz, $novels/test/Lee_Albany_1884.txt.xz"
      ;;
    layers)
      run layers equal_pairs_layers "Equal pairs: novels-gpt2, m and window by layer, two unseen novels, context 512" \
        novels-gpt2 "$novels/train" "$texts/novel-valid.txt" \
        "$novels/test/Doyle_Hound_1902.txt.xz, $novels/test/Lee_Albany_1884.txt.xz"
      ;;
    tinystories)
      run tinystories equal_pairs "Equal pairs: novels-gpt2 on TinyStories, context 512" novels-gpt2 \
        "$texts/stories-train.txt" "$texts/stories-valid.txt" "$stories/valid_head.txt" "eval.max_tokens=50000"
      ;;
    long)
      run long equal_pairs_1024 "Equal pairs: novels-gpt2, two unseen novels, context 1024" novels-gpt2 \
        "$novels/train" "$texts/novel-valid.txt" \
        "$novels/test/Doyle_Hound_1902.txt.xz, $novels/test/Lee_Albany_1884.txt.xz"
      ;;
    stories)
      run stories equal_pairs_stories "Equal pairs: stories260K on TinyStories, context 512" stories260K \
        "$texts/stories-train.txt" "$texts/stories-valid.txt" "$stories/valid_head.txt"
      ;;
    *)
      echo "equal_pairs.sh: $part is none of novels, layers, tinystories, long, stories" >&2
      exit 2
      ;;
  esac
done
