#!/usr/bin/env bash
# Prints docs/configs.md, made from the program's own descriptions of its keys: `bash
# tests/docs/configs.sh [PROGRAM] >docs/configs.md` after a key has changed. tests/docs/run.sh fails
# where that page is stale.
set -euo pipefail
program=${1:-build/release/focus}

# Lines of a --help as "key<TAB>(values)<TAB>meaning" or "section<TAB>meaning".
keys() {
  awk '
    /^[a-z][a-z0-9_.]*  +\(/ {
      key = $1
      rest = substr($0, index($0, "(") + 1)
      depth = 1  # the values end with the bracket that opened them
      for (end = 1; depth > 0; ++end) {
        letter = substr(rest, end, 1)
        depth += (letter == "(") - (letter == ")")
      }
      print key "\t" substr(rest, 1, end - 2) "\t" substr(rest, end + 2)
      next
    }
    /^[a-z][a-z0-9_]*  +[^ ]/ { key = $1; sub(/^[a-z0-9_]*  +/, ""); print key "\t" $0 }
  '
}

# Those as Markdown tables, one for each section.
tables() {
  awk -F '\t' '
    function escaped(text) { gsub(/\|/, "\\|", text); return text }
    function head() { print "| key | values | default | meaning |"; print "|---|---|---|---|" }
    NF == 2 { print "\n### " $1 "\n\n" toupper(substr($2, 1, 1)) substr($2, 2) ".\n"; head(); next }
    NR == 1 { head() }
    {
      at = index($2, ", default ")
      values = substr($2, 1, at - 1)
      preset = substr($2, at + 10)
      gsub(/\|/, ", ", values)
      printf "| `%s` | %s | `%s` | %s |\n", $1, escaped(values), escaped(preset), escaped($3)
    }
  '
}

# The keys after all sections belong to none: they are moved to the top.
plain_first() {
  awk -F '\t' '
    NF == 3 && !index($1, ".") { print; next }
    { later = later $0 "\n" }
    END { printf "%s", later }
  '
}

cat <<'TEXT'
# Configs: every key

Made by `tests/docs/configs.sh` from `focus train --help` and `focus compare --help`; do not edit.

A config is a YAML file of nested keys: `optim.lr` below is `lr` in the group `optim`. On the command line `key=value` sets any of
them and overrides the file. An unknown key or a value out of range is an error with its file and line. The resolved config, with
defaults, is written to `config.yaml` in the run's folder. [configs](../configs) has examples.

```sh
cat >mine.yaml <<'YAML'
method: retrofit
base: DIR                # a Hugging Face folder, or a checkpoint file of focus import
out: out/mine
steps: 300
data:
  train: [train.txt]
  valid: [valid.txt]
  context: 256
focus: {num_groups: 8, local_window: 64}
optim: {lr: 0.01}
YAML
focus train mine.yaml --dry-run
focus train mine.yaml seed=2 focus.tokens.gate=logit optim.lr=0.001
```

## What is trained: `method`

| method | what is trained | what the run leaves |
|---|---|---|
| `retrofit` | centroids and routing projection of each layer, on a frozen base | `focus.h5`, an adapter |
| `two_phase` | that for `two_phase.phase1_steps`, then these and the base together; with `two_phase.method=lora` these and a LoRA | `model.h5`, Focus in it; with a LoRA as `lora` |
| `full` | all of a base, with the attention that `attention` names | `model.h5` |
| `scratch` | a new model, shaped by `model` | `model.h5` |
| `lora` | low-rank adapters on a frozen base; with `attention=focus` the centroids too | `lora.h5`, or `focus.h5` with both, and PEFT's two files |

The second phase of `two_phase` has a separate learning rate and warm-up, and its optimiser starts with a new state. `steps` counts
both phases; `focus.tokens.sequence_steps` applies to the first phase only. A checkpoint of the first phase needs the same base, as
in a retrofit. New models are initialised as in GPT-2: normal with standard deviation `model.initializer_range`, the projections
into the residual stream divided by sqrt(2 layers). With `data.valid_fraction=0` and no `data.valid` there is no validation.

With `precision: bf16` the frozen matrices are rounded to bf16 (unless they are bf16 already). Products are in bf16 with sums in
float32 where the processor is faster with bf16 (AMX, AMD's AVX512_BF16), otherwise in float32, and the run reports it. `q8`
is described in [commands.md](commands.md). Where all weights are trained (`two_phase`, `full`, `scratch`)
`bf16` rounds both operands of every matrix product there, forward and backward; the weights, AdamW's state and everything
else stay in float32. Text formats are listed [here](files.md#what-is-read).
TEXT
echo
"$program" train --help | sed -n '/^Any key of the config/,$p' | keys | plain_first | tables
cat <<'TEXT'

## Keys of a comparison

`focus compare` reads a comparison config: `common` holds keys of a training config that all runs share. `runs` is a list of runs,
each with a `name` and the keys that differ. `sweep: {key: [values]}`, in one run or for all, makes one run per value, or per
combination of several keys. Keys in `runs` and `sweep` may be dotted. A run may have separate `seeds` and `attentions`.
In an evaluation `.jsonl` texts are read as the run's `data` says.

```sh
cat >mine_compare.yaml <<'YAML'
title: How many groups
out: out/mine_compare
seeds: [1, 2]
common:
  method: retrofit
  steps: 200
  data: {context: 256}
  focus: {local_window: 32}
runs:
  - name: Focus
    sweep: {focus.num_groups: [2, 4, 8]}
  - name: LoRA
    method: lora
    lora.r: 4
eval:
  attentions: [dense, local, soft, hard:1]
  context: 256
YAML
focus compare mine_compare.yaml base=DIR data.train=train.txt data.valid=valid.txt eval.valid=valid.txt
```

TEXT
"$program" compare --help | sed -n '/^key=value sets/,$p' | keys | plain_first | tables
