#!/usr/bin/env bash
# Asks the study's questions of the bases that bench/bases.sh trains: `bash bench/questions.sh DATA
# [bases|in_domain_search|in_domain|in_domain_documents|in_domain_rows|adaptation_search|adaptation|length|speed|from_scratch_search|from_scratch|ablations...]`. DATA holds models/novels-gpt2 (its tokenizer),
# text/novels19, text/wikitext-2, text/tinystories and text/tinyshakespeare. What is done is not done again; pages and
# runs go to out/questions, rows and the figures of runs to bench/results/questions, from where another machine goes on.
# `bash bench/questions.sh DATA keep` puts there what an unfinished part has come to.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data=$(realpath "${1:?wanted: the folder of text/}")
shift
parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then parts=(bases in_domain_search in_domain in_domain_documents adaptation_search adaptation length speed from_scratch_search from_scratch ablations); fi
focus=${FOCUS:-build/release/focus}
out=out/questions
texts=$out/texts
novels=$data/text/novels19
. bench/texts.sh
bases=out/bases
mkdir -p "$texts" bench/results/questions

# by_place FILE: with texts by their place in DATA, wherever that lies.
by_place() {
  sed "s#$data/##g" "$1"
}

# figures NAME: out/questions/NAME.json likewise, without the sizes of every group of every head.
figures() {
  by_place "$out/$1.json" | python3 -c "
import json, sys
figures = json.load(sys.stdin)
for at in figures.get('lengths', [figures]):
    for row in at['rows']:
        row.pop('group_sizes', None)
print(json.dumps(figures, indent=2))" >"bench/results/questions/$1.json"
}

# restore NAME, keep NAME: a part's finished runs from and to bench/results, figures without weights.
restore() {
  local kept="bench/results/questions/$1.runs.tar.xz"
  if [ -d "$out/$1/runs" ] || [ ! -f "$kept" ]; then return; fi
  mkdir -p "$out/$1/runs"
  tar -xJf "$kept" -C "$out/$1/runs"
  find "$out/$1/runs" -type f -exec sed -i "s#\\bDATA/#$data/#g" {} +
}
keep() {
  local copy="$out/$1.kept"
  rm -rf "$copy"
  mkdir "$copy"
  local figures from to
  for figures in "$out/$1"/runs/*/done.json; do
    from=$(dirname "$figures")
    to=$copy/$(basename "$from")
    mkdir "$to"
    cp "$from/recipe.yaml" "$from"/*.json "$to"
    if [ -f "$from/metrics.jsonl" ]; then cp "$from/metrics.jsonl" "$to"; fi  # the page's curves
  done
  find "$copy" -type f -exec sed -i "s#$data/#DATA/#g" {} +
  tar -C "$copy" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cJf "bench/results/questions/$1.runs.tar.xz" .
  rm -r "$copy"
  by_place "$out/$1/compare.jsonl" >"bench/results/questions/$1.jsonl"
  python3 bench/questions_tables.py
}

# run NAME [key=value...]
run() {
  restore "$1"
  OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$focus" compare "configs/study/$1.yaml" "${@:2}"
  keep "$1"
  cp "$out/$1/compare.html" "$out/$1.html"
}

# Novels to report, where nothing is chosen; novels to choose by; and of those that B2 has not seen the other half.
test=("$novels/test/Doyle_Hound_1902.txt.xz" "$novels/test/Lee_Albany_1884.txt.xz")
valid="$novels/valid/Conrad_Almayer_1895.txt.xz"
unseen=$(some "!($half_novels)")

# evaluate NAME MODEL ATTENTION CONTEXT [--flag value...]: unseen novels, and answers at 500 tokens' distance.
evaluate() {
  "$focus" eval --bos always "$2" --attention "$3" --text "${test[@]}" --context "$4" --stride "$(($4 / 2))" --max-tokens 40000 \
    --far 64 --recall "recall:keys=8:distance=1600:documents=40" --json "$out/$1.json" "${@:5}"
  by_place "$out/$1.json" >"bench/results/questions/$1.json"
}

# over_lengths NAME ADAPTER ATTENTIONS: B3 with it on unseen novels, at four lengths.
over_lengths() {
  "$focus" eval --bos always "$bases/b3/model.h5" --adapter "$2" --attention "$3" --text "${test[@]}" --max-tokens 32769 \
    --lengths 1024,2048,4096,8192 --compute bf16 --json "$out/length_$1.json"
  figures "length_$1"
}

# by_position NAME ADAPTER ATTENTIONS: the same at 8,192 tokens alone, by the place of a token in its window.
by_position() {
  "$focus" eval --bos always "$bases/b3/model.h5" --adapter "$2" --attention "$3" --text "${test[@]}" --max-tokens 32769 \
    --context 8192 --stride 4096 --html "$out/position_$1.html" --json "$out/position_$1.json"
  figures "position_$1"
}

# lengths NAME ATTENTIONS [--flag value...]: the same with groups of keys, fitted with these flags.
lengths() {
  [ -f "$out/length_$1.h5" ] ||
    "$focus" fit --bos always "$bases/b3/model.h5" --text "$novels/train" --tokens 16384 --out "$out/length_$1.h5" "${@:3}"
  over_lengths "$1" "$out/length_$1.h5" "$2"
}

for part in "${parts[@]}"; do
  case $part in
    keep)
      for page in "$out"/*/compare.jsonl; do keep "$(basename "$(dirname "$page")")"; done
      ;;
    bases)
      # Whether distance matters to B1 and B2: beside themselves without distance, and beside twins, trained with a window.
      evaluate b1 "$bases/b1/model.h5" "dense,window:32,sink_window:32" 2048
      evaluate b1_window "$bases/b1_window/model.h5" trained 2048 --reference "$bases/b1/model.h5"
      evaluate b2 "$bases/b2/model.h5" "dense,window:32,sink_window:32" 1024
      evaluate b2_window "$bases/b2_window/model.h5" trained 1024 --reference "$bases/b2/model.h5"
      ;;
    in_domain_search)
      run "$part" "data.train=[$novels/train]" "data.valid=[$valid]" "eval.valid=[$valid]"
      ;;
    in_domain_rows)
      # The page of its recorded rows, which are of B1 in float32; bench/bases has it in bf16, another base.
      "$focus" compare configs/study/in_domain.yaml --rows bench/results/questions/in_domain.jsonl \
        "data.train=[$novels/train]" "data.valid=[$valid]" "eval.valid=[${test[0]}, ${test[1]}]"
      by_place "$out/in_domain/compare.jsonl" >bench/results/questions/in_domain.jsonl
      python3 bench/questions_tables.py
      ;;
    in_domain_documents)
      run "$part" "data.train=[$novels/train]" "data.valid=[$valid]" "eval.valid=[$novels/test]"
      ;;
    in_domain | ablations)
      run "$part" "data.train=[$novels/train]" "data.valid=[$valid]" "eval.valid=[${test[0]}, ${test[1]}]"
      ;;
    adaptation_search)
      tail -c "+$((play_letters + 1))" "$data/text/tinyshakespeare/input.txt" >"$texts/plays.txt"  # what B2 has not read
      run "$part" "data.train=[$unseen]" "data.valid=[$valid]" "eval.texts.target=[$valid]" \
        "eval.texts.source=[$data/text/wikitext-2/wiki.test.tokens, $data/text/tinystories/valid_head.txt, $texts/plays.txt]"
      ;;
    adaptation)
      # The same texts of the source; the target's are novels on which nothing was chosen.
      tail -c "+$((play_letters + 1))" "$data/text/tinyshakespeare/input.txt" >"$texts/plays.txt"
      run "$part" "data.train=[$unseen]" "data.valid=[$valid]" "eval.texts.target=[${test[0]}, ${test[1]}]" \
        "eval.texts.source=[$data/text/wikitext-2/wiki.test.tokens, $data/text/tinystories/valid_head.txt, $texts/plays.txt]" \
        "eval.task_data=$data/benchmarks"
      ;;
    length)
      # Groups made at 1,024 tokens (of keys at 8,192, too), used at up to 8,192: an eighth of them and a short window,
      # which is what B1 asks for. Three seeds; what they do not change is asked once, and columns beside the groups that
      # are read.
      selection() { echo "summary:$1:rest=drop:block=1:local_window=16"; }
      for seed in 1 2 3; do
        suffix= also= columns=
        if [ "$seed" -gt 1 ]; then
          suffix=_seed$seed
        else
          also=dense,sink_window:256, columns=,summary:4:block=1:local_window=16
        fi
        lengths "keys_32$suffix" "$also$(selection 4)$columns" --num-groups 32 --context 1024 --seed "$seed"
        lengths "keys_32_at_8192$suffix" "$(selection 4)" --num-groups 32 --context 8192 --seed "$seed"
        lengths "keys_128$suffix" "$(selection 16)" --num-groups 128 --context 1024 --seed "$seed"
        tokens=$out/length_tokens$suffix
        if [ ! -f "$tokens/focus.h5" ]; then
          "$focus" train configs/retrofit_tokens.yaml data.bos=always "base=$bases/b3/model.h5" "out=$tokens" steps=60 "seed=$seed" \
            data.context=1024 data.batch=4 focus.local_window=16 focus.sequence_steps=48 "data.train=[$novels/train]" \
            "data.valid=[$valid]" eval_every=0
        fi
        over_lengths "tokens$suffix" "$tokens/focus.h5" "soft,hard:1,hard:2"
      done
      by_position keys_32 "$out/length_keys_32.h5" "dense,sink_window:256,$(selection 4)"
      by_position keys_128 "$out/length_keys_128.h5" "$(selection 16)"
      python3 bench/questions_tables.py
      ;;
    speed)
      # Quality and time of one configuration, of the whole model and of attention alone; wants an idle machine. Queries
      # choose alone, as in the rows of quality, or 32 together, which computes faster.
      for groups in 32 128; do
        words=
        for block in 1 32; do
          word=summary:$((groups / 8)):rest=drop:block=$block:local_window=16
          words+=",$word"
          "$focus" speed --lengths 2048,8192 --heads 5 --head-dim 64 --num-groups "$groups" --attention "$word" \
            --json "bench/results/questions/speed_attention_${groups}_$block.json"
        done
        "$focus" eval --bos always "$bases/b3/model.h5" --adapter "$out/length_keys_$groups.h5" --attention "dense$words" \
          --text "${test[0]}" --max-tokens 32769 --lengths 2048,8192 --against-dense --json "$out/speed_$groups.json" --json-speed
        by_place "$out/speed_$groups.json" >"bench/results/questions/speed_$groups.json"
      done
      ;;
    from_scratch_search | from_scratch)
      # Passages of novels that no training text is made of; words and keys are drawn anew for each question.
      echoes valid_echo "$valid" 100 30,50,80
      unread=$(find "$novels/test" -name '*.xz' | sort | paste -sd, -)
      echoes test_echo "$unread" 60 30,50,80
      echoes test_short_echo "$unread" 60 80,160,320
      case $part in
        from_scratch_search) scored=$texts/valid_echo.txt ;;
        *) scored="$texts/test_echo.txt, $texts/test_short_echo.txt" ;;
      esac
      said="$bases/texts/echo.txt, $bases/texts/short_echo.txt, $bases/texts/echo_recall.txt, $bases/texts/echo_copy.txt"
      run "$part" "data.train=[$said]" "data.valid=[$texts/valid_echo.txt]" \
        "tokenizer=$data/models/novels-gpt2/tokenizer.json" "data.cache_dir=$bases/cache" "eval.valid=[$scored]"
      ;;
    *)
      echo "questions.sh: $part is none of bases, in_domain_search, in_domain, in_domain_documents, in_domain_rows, adaptation_search, adaptation, length, speed, from_scratch_search, from_scratch, ablations" >&2
      exit 2
      ;;
  esac
done
