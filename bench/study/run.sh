#!/usr/bin/env bash
# Runs the study: `bash bench/study/run.sh DATA PART...`; the parts are listed below, README.md says what each one asks.
# DATA holds models/novels-gpt2, models/stories260K, text/novels19, text/tinystories, text/wikitext-2,
# text/tinyshakespeare and benchmarks. One thread a run; a finished run is not repeated. Runs and pages go to out/study,
# rows to out/study/rows, tables to bench/study/tables. bases.sh makes the models of out/bases first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

known="retrofit_tinystories retrofit_wikitext retrofit_stories scratch
equal_pairs equal_pairs_layers equal_pairs_tinystories equal_pairs_1024 equal_pairs_stories
dominance collapse top_k token_selection routing_dim num_groups temperature sinkhorn_iters two_groups local_window
forgetting forgetting_small tasks tasks_novels stability
bases in_domain_search in_domain in_domain_documents ablations adaptation_search adaptation length speed
from_scratch_search from_scratch"
if [ $# -lt 2 ]; then
  printf 'run.sh: expected DATA PART...; parts:\n%s\n' "$known" >&2
  exit 2
fi
data=$(realpath "$1")
shift
focus=${FOCUS:-build/release/focus}
out=out/study
bases=out/bases
texts=$out/texts
novels=$data/text/novels19
stories=$data/text/tinystories
# shellcheck source=bench/study/texts.sh
. bench/study/texts.sh
mkdir -p "$texts" "$out/rows"
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# Texts that a published file has to be cut for: a half of TinyStories' validation text to choose by and one to report;
# its training text in a part to train on and a beginning of the rest; WikiText-2's validation text between two articles.
python3 - "$data/text" "$texts" <<'PY'
import lzma
import pathlib
import re
import sys

source, out = map(pathlib.Path, sys.argv[1:])


def cut(path, at, first, second, most=None):
    text = path.read_text(encoding="utf-8")
    place = at(text)
    (out / first).write_text(text[:place], encoding="utf-8")
    (out / second).write_text(text[place:][:most], encoding="utf-8")


cut(source / "tinystories/valid_head.txt", lambda t: t.index("\n\n", len(t) // 2) + 2,
    "stories-valid.txt", "stories-test.txt")
cut(source / "tinystories/train_head.txt", lambda t: t.index("\n\n", len(t) * 4 // 5) + 2,
    "stories-train.txt", "stories-watch.txt", 12000)
cut(source / "wikitext-2/wiki.valid.tokens",
    lambda t: next(m.start() + 1 for m in re.finditer(r"\n = [^=].* = \n", t) if m.start() > 0.83 * len(t)),
    "wikitext-train.txt", "wikitext-valid.txt")
novel = lzma.open(source / "novels19/valid/Conrad_Almayer_1895.txt.xz", "rt", encoding="utf-8").read(40000)
(out / "novel-watch.txt").write_text(novel, encoding="utf-8")
PY
# What B2 has not read of the plays, and the other half of the novels.
tail -c "+$((play_letters + 1))" "$data/text/tinyshakespeare/input.txt" >"$texts/plays.txt"
unseen=$(some "!($half_novels)")
garden=$novels/valid/Burnett_Garden_1911.txt.xz
almayer=$novels/valid/Conrad_Almayer_1895.txt.xz
treasure=$novels/test/Stevenson_Treasure_1883.txt.xz
hound=$novels/test/Doyle_Hound_1902.txt.xz
albany=$novels/test/Lee_Albany_1884.txt.xz
gpt2=base=$data/models/novels-gpt2
llama=base=$data/models/stories260K

# relative FILE: its text, with paths relative to DATA.
relative() {
  sed "s#$data/##g" "$1"
}

# compare PART CONFIG FOLDER [key=value...]: runs in out/study/FOLDER, which several parts may share.
compare() {
  "$focus" compare "$2" "out=$out/$3" data.document_eos=false "${@:4}"
  relative "$out/$3/compare.jsonl" >"$out/rows/$1.jsonl"
  cp "$out/$3/compare.html" "$out/$1.html"
  python3 bench/study/tables.py "$out/rows" "$1"
}

# scores PART [--flag value...]: benchmarks on the runs of a part, added to its rows.
scores() {
  python3 bench/study/benchmarks.py "$focus" "$out/$1" --data "$data/benchmarks" --out "$out/$1_benchmarks.jsonl" "${@:2}"
  relative "$out/$1_benchmarks.jsonl" >>"$out/rows/$1.jsonl"
  python3 bench/study/tables.py "$out/rows" "$1"
}
tasks_runs=(--run "summary tokens, K=32 (fitted)" dense,window:32,sink_window:32,summary:2,summary:0
  --run "groups of tokens, K=4" soft,hard:1,hard:2 --run "LoRA r=1, lr=0.001" dense --run "LoRA r=1, lr=0.01" dense
  --run "full" dense)

adaptation_runs=(
  --run "the base" dense
  --run "Focus, the paper's form" dense,soft:balance=sequence,soft:balance=carried,hard:2:gate=drop:balance=carried
  --run "Focus, affinity gate" soft,hard:1,hard:2
  --run "summary tokens K=32 m=2, untrained" summary:2
  --run "summary tokens K=32 m=2" summary:2
  --run "LoRA r=4" dense
  --run "full fine-tuning" dense
  --run "two phases, the paper's form" soft:balance=carried,hard:2:gate=drop:balance=carried
  --run "LoRA r=16" dense
  --run "full fine-tuning, 160 steps" dense
  --run "full fine-tuning, lr=0.0001" dense
  --run "LoRA r=4, lr=0.003" dense
  --run "Focus, affinity gate, 4 million tokens" soft,hard:1,hard:2
  --run "LoRA r=4, 4 million tokens" dense
  --run "full fine-tuning, 4 million tokens" dense)

# trained_on TRAIN VALID TEST: the texts of a comparison that reports TEST.
trained_on() {
  texts_of=("data.train=[$1]" "data.valid=[$2]" "eval.valid=[$2]" "eval.test=[$3]" --final)
}

# small PART CONFIG FOLDER CONTEXT [key=value...]: the paper's configs at a small scale.
small() {
  compare "$1" "$2" "$3" "seeds=[1, 2, 3]" threads=1 data.batch=1 "data.context=$4" "eval.context=$4" \
    "eval.stride=$(($4 / 2))" eval.max_tokens=5000 eval_windows=8 checkpoint_every=0 "${@:5}"
}
# stories260K, trained on children's stories, on novels. Nothing is chosen by these runs, so they read a test text.
stories_on_novels=("$llama" "data.train=[$novels/train]" "data.valid=[$garden]" "eval.valid=[$treasure]")
# The window is an eighth of the context, as in the paper; where it varies, the context is 512 and the steps are halved.
short=(steps=200 optim.warmup_steps=20 eval_every=0)
phases=("${short[@]}" two_phase.phase1_steps=100 two_phase.lr=0.0005 two_phase.warmup_steps=20)

# evaluate NAME MODEL ATTENTION CONTEXT [--flag value...]: unseen novels, and answers at a distance of 500 tokens.
evaluate() {
  "$focus" eval --bos always "$2" --attention "$3" --text "$hound" "$albany" --context "$4" --stride "$(($4 / 2))" \
    --max-tokens 40000 --recall "recall:keys=8:distance=1600:documents=40" --json "$out/$1.json" "${@:5}"
}

# over_lengths NAME ADAPTER ATTENTIONS: B3 with an adapter on unseen novels, at four lengths.
b3_on_novels() {
  "$focus" eval --bos always "$bases/b3/model.h5" --adapter "$2" --attention "$3" --text "$hound" "$albany" \
    --max-tokens 32769 "${@:4}"
}
over_lengths() {
  local length
  for length in 1024 2048 4096 8192; do
    b3_on_novels "$@" --context "$length" --precision bf16 --json "$out/length_$1_$length.json"
  done
  python3 bench/study/join_lengths.py "$out/length_$1"_{1024,2048,4096,8192}.json >"$out/rows/length_$1.json"
}
# over_lengths_keys NAME ATTENTIONS [--flag value...]: with groups of keys, fitted with these flags.
over_lengths_keys() {
  [ -f "$out/length_$1.h5" ] ||
    "$focus" fit --bos always "$bases/b3/model.h5" --text "$novels/train" --tokens 16384 --out "$out/length_$1.h5" "${@:3}"
  over_lengths "$1" "$out/length_$1.h5" "$2"
}

# Groups made at 1,024 tokens (of keys also at 8,192) and used at up to 8,192, three seeds. What seeds do not change is
# evaluated once, and so are summary tokens.
length() {
  local seed suffix also summary tokens
  selection() { echo "summary:$1:rest=drop:block=1:local_window=16"; }
  for seed in 1 2 3; do
    suffix='' also='' summary=''
    if [ "$seed" -gt 1 ]; then
      suffix=_seed$seed
    else
      also=dense,sink_window:256, summary=,summary:4:block=1:local_window=16
    fi
    over_lengths_keys "keys_32$suffix" "$also$(selection 4)$summary" --num-groups 32 --context 1024 --seed "$seed"
    over_lengths_keys "keys_32_at_8192$suffix" "$(selection 4)" --num-groups 32 --context 8192 --seed "$seed"
    over_lengths_keys "keys_128$suffix" "$(selection 16)" --num-groups 128 --context 1024 --seed "$seed"
    tokens=$out/length_tokens$suffix
    if [ ! -f "$tokens/focus.h5" ]; then
      "$focus" train configs/retrofit.yaml data.bos=always "base=$bases/b3/model.h5" "out=$tokens" steps=60 \
        data.document_eos=false \
        "seed=$seed" data.context=1024 data.batch=4 focus.local_window=16 focus.tokens.sequence_steps=48 \
        "data.train=[$novels/train]" "data.valid=[$almayer]" eval_every=0
    fi
    over_lengths "tokens$suffix" "$tokens/focus.h5" "soft,hard:1,hard:2"
  done
  python3 bench/study/tables.py "$out/rows" length
}

# Quality and time of one configuration, of the whole model and of attention alone, on an idle machine and two threads.
# Queries select alone, as in the rows of quality, or 32 together, which computes faster.
speed() {
  local groups block length spec specs
  for groups in 32 128; do
    specs=
    for block in 1 32; do
      spec=summary:$((groups / 8)):rest=drop:block=$block:local_window=16
      specs+=",$spec"
      OMP_NUM_THREADS=2 "$focus" speed --lengths 2048,8192 --heads 5 --head-dim 64 --num-groups "$groups" \
        --attention "$spec" --json "$out/speed_attention_${groups}_$block.json"
    done
    for length in 2048 8192; do
      OMP_NUM_THREADS=2 "$focus" eval --bos always "$bases/b3/model.h5" --adapter "$out/length_keys_$groups.h5" \
        --attention "dense$specs" --text "$hound" --max-tokens 32769 --context "$length" --against dense \
        --json "$out/speed_${groups}_$length.json" --json-speed
    done
    python3 bench/study/join_lengths.py "$out/speed_$groups"_{2048,8192}.json >"$out/speed_$groups.json"
  done
}

# The paper's retrofit with K=8; its groups in an unseen novel.
stability() {
  local seed
  for seed in 1; do
    [ -e "$out/stability/$seed/focus.h5" ] ||
      "$focus" train configs/paper/retrofit.yaml "$llama" "data.train=[$novels/train]" "data.valid=[$garden]" threads=1 \
        data.document_eos=false \
        "out=$out/stability/$seed" "seed=$seed" steps=400 data.context=256 focus.num_groups=8 focus.local_window=32 \
        optim.warmup_steps=20 checkpoint_every=100 checkpoint_keep=100 eval_every=200 eval_windows=8 --overwrite
  done
  "$focus" groups "$data/models/stories260K" --adapter "$out/stability/1/focus.h5" --text "$treasure" --context 256 \
    --max-tokens 8192 --out "$out/stability/groups" --overwrite
}

for part; do
  config=bench/study/configs/$part.yaml
  case $part in
    retrofit_tinystories)
      trained_on "$stories/train_head.txt" "$texts/stories-valid.txt" "$texts/stories-test.txt"
      compare "$part" bench/study/configs/retrofit.yaml "$part" "$gpt2" "${texts_of[@]}"
      ;;
    retrofit_wikitext)  # k=3 and 4 attend all pairs
      trained_on "$texts/wikitext-train.txt" "$texts/wikitext-valid.txt" "$data/text/wikitext-2/wiki.test.tokens"
      compare "$part" bench/study/configs/retrofit.yaml "$part" "$gpt2" eval.max_tokens=15000 "${texts_of[@]}" \
        "eval.attentions=[dense,local,soft,hard:1,hard:2,trained]"
      ;;
    retrofit_stories)
      trained_on "$novels/train" "$garden" "$treasure"
      compare "$part" bench/study/configs/retrofit.yaml "$part" "$llama" "${texts_of[@]}"
      ;;
    scratch)
      trained_on "$novels/train" "$garden" "$treasure"
      compare "$part" "$config" "$part" "tokenizer=$data/models/novels-gpt2" "${texts_of[@]}"
      ;;
    equal_pairs | equal_pairs_layers | equal_pairs_1024)
      trained_on "$novels/train" "$texts/novel-watch.txt" "$hound, $albany"
      compare "$part" "$config" "$part" "$gpt2" "${texts_of[@]}"
      ;;
    equal_pairs_tinystories)
      trained_on "$texts/stories-train.txt" "$texts/stories-watch.txt" "$stories/valid_head.txt"
      compare "$part" bench/study/configs/equal_pairs.yaml "$part" "$gpt2" "${texts_of[@]}" eval.max_tokens=50000
      ;;
    equal_pairs_stories)
      trained_on "$texts/stories-train.txt" "$texts/stories-watch.txt" "$stories/valid_head.txt"
      compare "$part" "$config" "$part" "$llama" "${texts_of[@]}"
      ;;
    dominance | collapse)
      if [ "$part" = dominance ]; then config=configs/paper/dominance.yaml; fi
      small "$part" "$config" "$part" 256 focus.local_window=32 "${stories_on_novels[@]}" eval.max_tokens=8000
      python3 bench/study/tables.py "$out/rows" "$part" --runs "$out/$part/runs"
      ;;
    top_k | token_selection)
      small "$part" "configs/paper/$part.yaml" paper 256 focus.local_window=32 "${stories_on_novels[@]}" "${short[@]}"
      ;;
    routing_dim)
      small "$part" "$config" paper 256 focus.local_window=32 "${stories_on_novels[@]}" "${short[@]}"
      ;;
    num_groups | temperature | sinkhorn_iters)
      small "$part" "$config" paper 256 focus.local_window=32 "${stories_on_novels[@]}" "${phases[@]}"
      ;;
    two_groups)
      small "$part" "$config" paper 512 "${stories_on_novels[@]}" "${short[@]}" steps=100
      ;;
    local_window)
      small "$part" "$config" paper 512 "${stories_on_novels[@]}" "${phases[@]}" steps=100 \
        two_phase.phase1_steps=50
      ;;
    forgetting_small)  # r=4 on these two matrices has 5,120 parameters, Focus 5,440
      small "$part" bench/study/configs/forgetting.yaml "$part" 256 "$llama" "data.train=[$novels/train]" \
        "data.valid=[$garden]" "eval.texts.target=[$treasure]" "eval.texts.source=[$texts/stories-test.txt]" \
        "lora.target_modules=[q_proj, o_proj]" eval.max_tokens=6000
      ;;
    forgetting)
      small "$part" "$config" "$part" 256 "$gpt2" "data.train=[$stories/train_head.txt]" \
        "data.valid=[$texts/stories-valid.txt]" "eval.texts.target=[$texts/stories-test.txt]" \
        "eval.texts.source=[$hound]" eval.max_tokens=6000
      ;;
    tasks)
      small "$part" "$config" "$part" 256 "$llama" "data.train=[$novels/train]" data.batch=2 "seeds=[1]" \
        "data.valid=[$garden]" "eval.valid=[$garden]"
      scores "$part" --limit 200 "${tasks_runs[@]}"
      ;;
    tasks_novels)
      small "$part" bench/study/configs/tasks.yaml "$part" 256 "$gpt2" data.batch=2 "seeds=[1]" \
        "data.train=[$stories/train_head.txt]" "data.valid=[$texts/stories-valid.txt]" \
        "eval.valid=[$texts/stories-valid.txt]"
      scores "$part" --limit 100 "${tasks_runs[@]}"
      ;;
    bases)  # B1 and B2 beside themselves without distance, and beside twins that were trained with a window
      evaluate b1 "$bases/b1/model.h5" "dense,window:32,sink_window:32" 2048
      evaluate b1_window "$bases/b1_window/model.h5" trained 2048
      evaluate b2 "$bases/b2/model.h5" "dense,window:32,sink_window:32" 1024
      evaluate b2_window "$bases/b2_window/model.h5" trained 1024
      ;;
    in_domain_search)
      compare "$part" "$config" "$part" "data.train=[$novels/train]" "data.valid=[$almayer]" "eval.valid=[$almayer]"
      ;;
    in_domain_documents)
      compare "$part" "$config" "$part" "data.train=[$novels/train]" "data.valid=[$almayer]" "eval.valid=[$novels/test]"
      ;;
    in_domain | ablations)
      compare "$part" "$config" "$part" "data.train=[$novels/train]" "data.valid=[$almayer]" \
        "eval.valid=[$hound, $albany]"
      ;;
    adaptation_search | adaptation)  # the target of the search is a novel to choose by
      target="$hound, $albany"
      if [ "$part" = adaptation_search ]; then target=$almayer; fi
      compare "$part" "$config" "$part" "data.train=[$unseen]" "data.valid=[$almayer]" "eval.texts.target=[$target]" \
        "eval.texts.source=[$data/text/wikitext-2/wiki.test.tokens, $stories/valid_head.txt, $texts/plays.txt]"
      if [ "$part" = adaptation ]; then
        scores "$part" --limit 300 --tasks lambada "${adaptation_runs[@]}"
      fi
      ;;
    from_scratch_search | from_scratch)  # passages of novels that no training text contains
      unread=$(find "$novels/test" -name '*.xz' | sort | paste -sd, -)
      echoes valid_echo "$almayer" 100 30,50,80
      echoes test_echo "$unread" 60 30,50,80
      echoes test_short_echo "$unread" 60 80,160,320
      scored="$texts/test_echo.txt, $texts/test_short_echo.txt"
      if [ "$part" = from_scratch_search ]; then scored=$texts/valid_echo.txt; fi
      documents="$bases/texts/echo.txt, $bases/texts/short_echo.txt, $bases/texts/echo_recall.txt, $bases/texts/echo_copy.txt"
      compare "$part" "$config" "$part" "data.train=[$documents]" "data.valid=[$texts/valid_echo.txt]" \
        "tokenizer=$data/models/novels-gpt2/tokenizer.json" "data.cache_dir=$bases/cache" "eval.valid=[$scored]"
      ;;
    length | speed | stability) "$part" ;;
    *)
      printf 'run.sh: no part is named %s; parts:\n%s\n' "$part" "$known" >&2
      exit 2
      ;;
  esac
done
