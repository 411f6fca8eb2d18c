#!/usr/bin/env python3
"""Makes bench/results/study/README.md from the rows that bench/study.sh left beside it."""

import pathlib
import statistics

from result_page import failures, read_rows, write_page

FOLDER = pathlib.Path(__file__).parent / "results" / "study"
PARTS = ("tinystories", "wikitext", "stories", "scratch")
TITLES = {
    "tinystories": "novels-gpt2 (6 M parameters, trained on novels) on TinyStories",
    "wikitext": "novels-gpt2 on WikiText-2",
    "stories": "stories260K (260 K parameters, trained on children's stories) on novels",
    "scratch": "From scratch on novels, 1.4 M parameters, GPT-2 form",
}


def spread(values, form="{:.2f}"):
    """Mean and standard deviation (n - 1), or nothing."""
    if not values:
        return ""
    mean = form.format(statistics.mean(values))
    return f"{mean} ± {form.format(statistics.stdev(values))}" if len(values) > 1 else mean


def routing(row):
    if row["routing"] is None:
        return ""
    return row["routing"] if row["causal"] else f"{row['routing']} (not causal)"


def measured(rows, split):
    row = next((r for r in rows if r["split"] == split), None)
    if row is None:
        return ""
    text = pathlib.Path(row["texts"]).name
    return (f"{split}: {text}, {row['tokenizer'].split()[0]} tokenizer, first {row['tokens_scored'] + 1:,} tokens "
            f"({row['bytes']:,} bytes), context {row['context']}, stride {row['stride']}")


def part_table(part):
    rows, failed = read_rows(FOLDER / f"{part}.jsonl")
    groups = {}
    for row in rows:
        groups.setdefault((row["run"], row["attention"], routing(row)), []).append(row)
    seeds = sorted({r["seed"] for r in rows})
    out = [f"## {TITLES[part]}", ""]
    out += [f"Seeds {', '.join(map(str, seeds))}; {rows[0]['train_tokens']:,} tokens of training; "
            + "; ".join(filter(None, (measured(rows, s) for s in ("valid", "test")))) + ".", ""]
    out += ["| run | trained | attention | routing | valid | test | pairs | largest group |",
            "|---|---|---|---|---|---|---|---|"]
    last = None
    for (run, attention, how), group in groups.items():
        figures = {s: [r["perplexity"] for r in group if r["split"] == s] for s in ("valid", "test")}
        shown = group if not figures["test"] else [r for r in group if r["split"] == "test"]
        largest = [r["largest_group"] for r in shown if r.get("largest_group")]
        out.append("| " + " | ".join([
            "" if run == last else run,
            "" if run == last else f"{group[0]['trainable_parameters']:,}",
            attention, how, spread(figures["valid"]), spread(figures["test"]),
            f"{100 * statistics.mean(r['pairs_attended'] for r in shown):.0f} %",
            f"{100 * statistics.mean(largest):.0f} %" if largest else ""]) + " |")
        last = run
    return out + [""] + failures(failed)


def main():
    head = ["# The study", "",
            "Made by `bench/study_tables.py` from the rows that `bench/study.sh` left (`*.jsonl`); do not edit.",
            "Perplexities, mean ± standard deviation over the seeds; pairs and the largest group's share of",
            "tokens are of the test text where there is one. Runs shared the machine two at a time, one thread",
            "each: their tokens/s in the rows are no claim.", ""]
    write_page(FOLDER, head, PARTS, part_table)


if __name__ == "__main__":
    main()
