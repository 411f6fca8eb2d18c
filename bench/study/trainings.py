#!/usr/bin/env python3
"""Soft against hard training of the same retrofit: step time, loss during training and perplexity afterwards, by
length and number of groups.

Every run sees the same number of tokens a step. Each run appends a line of JSON to OUT/trainings.jsonl (finished runs
are not repeated); the table goes to OUT/trainings.md, the curves of every length and number of groups to
OUT/T..-K...html.

The base of the recorded table, bytes of TinyStories:
  focus train configs/scratch.yaml out=out/trainings/base steps=500 model.hidden_size=128
    model.num_hidden_layers=4 model.num_attention_heads=4 data.context=4096 data.batch=1
    data.valid_fraction=0 data.train=[train_head.txt] eval_every=0
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path


def parsed():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="model to retrofit: a store or a Hugging Face folder")
    parser.add_argument("--train", required=True, help="text to train on")
    parser.add_argument("--valid", required=True, help="text to score")
    parser.add_argument("--out", type=Path, default=Path("out/trainings"))
    parser.add_argument("--focus", default="build/release/focus", help="the program")
    parser.add_argument("--lengths", default="512,1024,2048,4096")
    parser.add_argument("--groups", default="4,8,16")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a step")
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--window", type=int, default=32)
    parser.add_argument("--max-tokens", type=int, default=32768, help="tokens to score")
    return parser.parse_args()


def run(*command):
    done = subprocess.run([str(part) for part in command], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr.strip().splitlines()[-1])


def measured(o, length, groups, training):
    """One training and its evaluation."""
    out = o.out / f"T{length}-K{groups}-{training}"
    run(o.focus, "train", "--overwrite", "method=retrofit", f"base={o.base}", f"out={out}",
        f"data.train=[{o.train}]", f"data.valid=[{o.valid}]", f"data.context={length}",
        f"data.batch={max(1, o.tokens // length)}", "data.bos=always", f"steps={o.steps}", "log_every=5",
        "eval_every=0", "checkpoint_every=0", "optim.lr=0.01", "optim.warmup_steps=20",
        f"focus.num_groups={groups}", f"focus.local_window={o.window}",
        f"focus.training={training}", f"focus.tokens.sequence_steps={o.steps * 4 // 5}")
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [s for s in steps if "loss" in s]
    scores = out / "eval.json"
    run(o.focus, "eval", "--bos", "always", o.base, "--adapter", out / "focus.h5", "--text", o.valid, "--context",
        length, "--stride", length // 2, "--max-tokens", o.max_tokens, "--attention", "dense,focus:2", "--json",
        scores)
    rows = json.loads(scores.read_text())["rows"]
    tokens = max(1, o.tokens // length) * length
    return {
        "length": length,
        "groups": groups,
        "training": training,
        "step_ms": 1e3 * tokens / statistics.median(s["tokens_per_second"] for s in steps),
        "losses": {s["step"]: s["loss"] for s in steps},
        "rows": rows,
    }


def loss_around(record, step, reach=12):
    near = [loss for at, loss in record["losses"].items() if abs(int(at) - step) <= reach]
    return statistics.mean(near)


def perplexity(record, attention):
    for row in record["rows"]:
        if row["attention"].split(" keep")[0] == attention:
            pairs = f" ({100 * row['pairs_attended']:.0f} %)" if "hard" in attention else ""
            return f"{row['perplexity']:.3f}{pairs}"
    raise KeyError(f"no {attention} in {[row['attention'] for row in record['rows']]}")


def table(o, records):
    middle, last = o.steps // 3, o.steps
    lines = [
        f"| T | K | training | step, ms | loss around step 12 / {middle} / {last} | dense | soft "
        "| hard k=1 (pairs) | hard k=2 (pairs) |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in records:
        losses = " / ".join(f"{loss_around(r, s):.4f}" for s in (12, middle, last))
        cells = [r["length"], r["groups"], r["training"], f"{r['step_ms']:.0f}", losses]
        cells += [perplexity(r, a) for a in ("dense", "soft", "hard k=1", "hard k=2")]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    o = parsed()
    o.out.mkdir(parents=True, exist_ok=True)
    history = o.out / "trainings.jsonl"
    done = [json.loads(x) for x in history.read_text().splitlines()] if history.exists() else []
    records = []
    for length in map(int, o.lengths.split(",")):
        for groups in map(int, o.groups.split(",")):
            for training in ("soft", "hard"):
                key = {"length": length, "groups": groups, "training": training}
                record = next((r for r in done if key.items() <= r.items()), None)
                if record is None:
                    record = measured(o, length, groups, training)
                    with history.open("a") as file:
                        file.write(json.dumps(record) + "\n")
                records.append(record)
                print(f"T={length} K={groups} {training}: {record['step_ms']:.0f} ms a step, "
                      f"hard k=1 {perplexity(record, 'hard k=1')}", flush=True)
                (o.out / "trainings.md").write_text(table(o, records))
            runs = [o.out / f"T{length}-K{groups}-{training}" for training in ("soft", "hard")]
            run(o.focus, "report", "--title", f"Soft and hard training, T={length}, K={groups}",
                "--run", runs[0], "--run", runs[1], "--out", o.out / f"T{length}-K{groups}.html")
    print(table(o, records))


if __name__ == "__main__":
    main()
