#!/usr/bin/env python3
"""Makes bench/results/equal_pairs/README.md from the rows that bench/equal_pairs.sh left beside it."""

import math
import pathlib
import statistics

from result_page import failures, read_rows, split_groups, texts_heading, write_page

FOLDER = pathlib.Path(__file__).parent / "results" / "equal_pairs"
PARTS = ("novels", "layers", "tinystories", "long", "stories")


def mean(rows, key):
    return statistics.mean(row[key] for row in rows)


def spread(rows, key):
    return statistics.stdev(row[key] for row in rows) if len(rows) > 1 else 0.0


def line(run, rows):
    """One form at one share: means over seeds, and over them the spread of what each seed lost."""
    loss = 100 * math.expm1(mean(rows, "nats_against_dense"))
    error = 100 * mean(rows, "nats_against_dense_error")
    seeds = f" ({100 * spread(rows, 'nats_against_dense'):.2f})" if len(rows) > 1 else ""
    return (f"| {run} | {rows[0]['attention']} | {100 * mean(rows, 'pairs_attended'):.1f} % | {mean(rows, 'kl'):.4f} "
            f"| {loss:+.2f} ± {error:.2f}{seeds} | {mean(rows, 'perplexity'):.3f} | {len(rows)} |")


def part_table(part):
    rows, failed = read_rows(FOLDER / f"{part}.jsonl")
    out = []
    for split, groups in split_groups(rows).items():
        out += texts_heading(part, split, groups)
        out += ["| form | attention | pairs | KL | loss, % of dense perplexity | perplexity | seeds |",
                "|---|---|---|---|---|---|---|"]
        of_share = sorted(groups.items(), key=lambda item: mean(item[1], "pairs_attended"))
        out += [line(run, members) for (run, _, _), members in of_share]
        out.append("")
    return out + failures(failed)


def main():
    head = ["# Equal pairs", "",
            "Made by `bench/equal_pairs_tables.py` from the rows that `bench/equal_pairs.sh` left (`*.jsonl`); do not",
            "edit. Sorted by the share of pairs. KL: KL(dense || form), nats a token. Loss: the paired difference to",
            "dense attention of the same model on the same tokens, ± its standard error over tokens, in brackets the",
            "standard deviation over seeds. Speeds in the rows are of a busy machine and claim nothing.", ""]
    write_page(FOLDER, head, PARTS, part_table)


if __name__ == "__main__":
    main()
