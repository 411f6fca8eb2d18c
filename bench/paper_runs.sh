#!/usr/bin/env bash
# Runs the paper's recipes at the scale of docs/results.md ("Forgetting" to "Benchmarks"): `bash bench/paper_runs.sh
# DATA [dominance|collapse|forgetting|forgetting_small|ablations|stability|tasks|tasks_novels...]`. DATA holds
# models/novels-gpt2, models/stories260K, text/novels19, text/tinystories and, for tasks, benchmarks. One thread; what
# is done is not done again. Pages go to out/paper, rows to bench/results/paper.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

data=$(realpath "${1:?wanted: the folder of models/ and text/}")
shift
parts=("$@")
if [ ${#parts[@]} -eq 0 ]; then
  parts=(dominance collapse forgetting forgetting_small ablations stability tasks tasks_novels)
fi
focus=${FOCUS:-build/release/focus}
novels=$data/text/novels19
texts=out/paper/texts
mkdir -p bench/results/paper "$texts"
# TinyStories' validation text is cut as in bench/study.sh: a half to watch by and one to report.
python3 - "$data/text/tinystories/valid_head.txt" "$texts" <<'PY'
import pathlib
import sys

text, out = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), pathlib.Path(sys.argv[2])
place = text.index("\n\n", len(text) // 2) + 2
(out / "stories-valid.txt").write_text(text[:place], encoding="utf-8")
(out / "stories-test.txt").write_text(text[place:], encoding="utf-8")
PY

# run NAME RECIPE OUT CONTEXT [key=value...]: three seeds, one thread.
run() {
  OMP_NUM_THREADS=1 "$focus" compare "configs/$2.yaml" "out=out/paper/$3" "seeds=[1, 2, 3]" threads=1 data.batch=1 \
    "data.context=$4" "eval.context=$4" "eval.stride=$(($4 / 2))" eval.max_tokens=5000 \
    eval_windows=8 checkpoint_every=0 "${@:5}"
  # Texts by their place in DATA, wherever that lies.
  sed "s#$data/##g" "out/paper/$3/compare.jsonl" >"bench/results/paper/$1.jsonl"
  cp "out/paper/$3/compare.html" "out/paper/$1.html"
}

# stories260K, made of children's stories, on novels. Nothing is chosen by these runs, so a text of the test split is read.
stories_on_novels=("base=$data/models/stories260K" "data.train=[$novels/train]"
  "data.valid=[$novels/valid/Burnett_Garden_1911.txt.xz]"
  "eval.valid=[$novels/test/Stevenson_Treasure_1883.txt.xz]")

for part in "${parts[@]}"; do
  case $part in
    dominance | collapse)
      case $part in dominance) recipe=paper/dominance ;; *) recipe=study/collapse ;; esac
      run "$part" "$recipe" "$part" 256 focus.local_window=32 "${stories_on_novels[@]}" eval.max_tokens=8000
      # What metrics.jsonl says of the groups while they train, means of every hundred steps.
      python3 bench/paper_steps.py "out/paper/$part" >"bench/results/paper/${part}_steps.jsonl"
      ;;
    ablations)
      # One folder: what two recipes share is done once. The window is an eighth of the context, as in the paper;
      # where it is what changes the context is 512, the model's positions, and the steps are half as many.
      phases=(steps=200 optim.warmup_steps=20 eval_every=0 two_phase.phase1_steps=100 two_phase.lr=0.0005
        two_phase.warmup_steps=20)
      for name in top_k token_selection routing_dim; do
        run "$name" "paper/$name" ablations 256 focus.local_window=32 "${stories_on_novels[@]}" "${phases[@]:0:3}"
      done
      for name in num_groups temperature sinkhorn_iters; do
        run "$name" "paper/$name" ablations 256 focus.local_window=32 "${stories_on_novels[@]}" "${phases[@]}"
      done
      run two_groups paper/two_groups ablations 512 "${stories_on_novels[@]}" "${phases[@]:0:3}" steps=100
      run local_window paper/local_window ablations 512 "${stories_on_novels[@]}" "${phases[@]}" steps=100 \
        two_phase.phase1_steps=50
      ;;
    forgetting_small)
      # stories260K towards novels; the source is the TinyStories validation text. r=4 on these two matrices has
      # 5,120 parameters, Focus 5,440.
      run forgetting_small study/forgetting forgetting_small 256 "base=$data/models/stories260K" \
        "data.train=[$novels/train]" "data.valid=[$novels/valid/Burnett_Garden_1911.txt.xz]" \
        "eval.texts.target=[$novels/test/Stevenson_Treasure_1883.txt.xz]" "eval.texts.source=[$texts/stories-test.txt]" \
        "lora.target_modules=[q_proj, o_proj]" eval.max_tokens=6000
      ;;
    forgetting)
      # novels-gpt2, made of novels, towards TinyStories; the source is a novel that it never saw.
      run forgetting study/forgetting forgetting 256 "base=$data/models/novels-gpt2" \
        "data.train=[$data/text/tinystories/train_head.txt]" "data.valid=[$texts/stories-valid.txt]" \
        "eval.texts.target=[$texts/stories-test.txt]" \
        "eval.texts.source=[$novels/test/Doyle_Hound_1902.txt.xz]" eval.max_tokens=6000
      ;;
    tasks)
      # The scores of 200 items of each benchmark before and after, stories260K.
      run tasks study/tasks tasks 256 "base=$data/models/stories260K" "data.train=[$novels/train]" data.batch=2 seeds=[1] \
        "data.valid=[$novels/valid/Burnett_Garden_1911.txt.xz]" \
        "eval.valid=[$novels/valid/Burnett_Garden_1911.txt.xz]" "eval.task_data=$data/benchmarks"
      ;;
    tasks_novels)
      # The same of novels-gpt2, on 100 items.
      run tasks_novels study/tasks tasks_novels 256 "base=$data/models/novels-gpt2" data.batch=2 seeds=[1] \
        "data.train=[$data/text/tinystories/train_head.txt]" "data.valid=[$texts/stories-valid.txt]" \
        "eval.valid=[$texts/stories-valid.txt]" "eval.task_data=$data/benchmarks" eval.limit=100
      ;;
    stability)
      # The paper's retrofit with K=8, checkpoints kept, and a second seed; groups in an unseen novel.
      for seed in 1 2; do
        if [ -e "out/paper/stability/$seed/focus.h5" ]; then continue; fi
        OMP_NUM_THREADS=1 "$focus" train configs/paper/retrofit.yaml "base=$data/models/stories260K" \
          "data.train=[$novels/train]" "data.valid=[$novels/valid/Burnett_Garden_1911.txt.xz]" threads=1 \
          "out=out/paper/stability/$seed" "seed=$seed" steps=400 data.context=256 focus.num_groups=8 \
          focus.local_window=32 optim.warmup_steps=20 checkpoint_every=100 checkpoint_keep=100 eval_every=200 \
          eval_windows=8 --overwrite
      done
      OMP_NUM_THREADS=1 "$focus" groups "$data/models/stories260K" --adapter out/paper/stability/1/focus.h5 \
        --text "$novels/test/Stevenson_Treasure_1883.txt.xz" --context 256 --max-tokens 8192 \
        --checkpoints out/paper/stability/1 --against out/paper/stability/2/focus.h5 \
        --out out/paper/stability/groups --overwrite
      python3 -c 'import json, sys
report = json.load(open(sys.argv[1]))
for row in [report["against"], *report["checkpoints"]]:
    print(json.dumps(row))' out/paper/stability/groups/groups.json >bench/results/paper/stability.jsonl
      ;;
    *)
      echo "paper_runs.sh: $part is none of dominance, collapse, forgetting, forgetting_small, ablations, stability, tasks," \
        "tasks_novels" >&2
      exit 2
      ;;
  esac
  python3 bench/paper_tables.py
done
