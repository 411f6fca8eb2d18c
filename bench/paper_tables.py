#!/usr/bin/env python3
"""Makes bench/results/paper/README.md from the rows that bench/paper_runs.sh left beside it."""

import json
import pathlib
import statistics

from result_page import cell, failures, mean_and_spread, read_rows, split_groups, texts_heading, write_page

FOLDER = pathlib.Path(__file__).parent / "results" / "paper"
PARTS = ("dominance", "collapse", "forgetting", "forgetting_small", "num_groups", "temperature", "sinkhorn_iters",
         "routing_dim", "two_groups", "local_window", "top_k", "token_selection", "tasks", "tasks_novels")
STEPS = (100, 400, 800, 1200, 1600)


def percent(rows, key):
    return cell(rows, key, ".1f", 100, " %")


def line(run, rows):
    routing = f", {rows[0]['routing']}" if rows[0]["routing"] else ""
    return (f"| {run} | {rows[0]['trainable_parameters']:,} | {rows[0]['attention']}{routing} "
            f"| {100 * statistics.mean(row['pairs_attended'] for row in rows):.1f} % "
            f"| {mean_and_spread([row['perplexity'] for row in rows], '.3f')} | {percent(rows, 'largest_group')} "
            f"| {len(rows)} |")


def steps_table(part):
    """The largest group while training: mean over layers / the worst layer, of the hundred steps before."""
    path = FOLDER / f"{part}_steps.jsonl"
    if not path.exists():
        return []
    runs = {}
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        runs.setdefault(row["run"], {}).setdefault(row["step"], []).append(row)
    steps = [step for step in STEPS if all(step in of_run for of_run in runs.values())]
    out = [f"### {part}, the largest group while training: mean over layers / the worst layer", "",
           f"| | {' | '.join(f'step {step}' for step in steps)} |", f"|---|{'---|' * len(steps)}"]
    for run, of_run in runs.items():
        cells = [f"{percent(of_run[step], 'largest_group')} / {percent(of_run[step], 'worst_layer')}" for step in steps]
        out.append(f"| {run} | {' | '.join(cells)} |")
    return out + [""]


def part_table(part):
    rows, failed = read_rows(FOLDER / f"{part}.jsonl")
    # Scores of benchmarks are rows too; they stand in docs/results.md.
    rows = [row for row in rows if row.get("perplexity") is not None and row.get("texts")]
    out = []
    for split, groups in split_groups(rows).items():
        out += texts_heading(part, split, groups)
        out += ["| run | trained | attention | pairs | perplexity | largest group | seeds |",
                "|---|---|---|---|---|---|---|"]
        out += [line(run, members) for (run, _, _), members in groups.items()]
        out.append("")
    out += steps_table(part)
    return out + failures(failed)


if __name__ == "__main__":
    write_page(FOLDER, ["# The paper's recipes", "",
                        "Made by `bench/paper_tables.py` from the rows that `bench/paper_runs.sh` left (`*.jsonl`); do not",
                        "edit. Means over seeds, in brackets the standard deviation over seeds. Speeds in the rows are of",
                        "a busy machine and claim nothing.", ""], PARTS, part_table)
