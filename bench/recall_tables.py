#!/usr/bin/env python3
"""Gathers what bench/recall.sh measured into bench/results/recall: rows (recall.jsonl) and a page of tables.

  python3 bench/recall_tables.py [FIGURES]

With FIGURES, the folder of the program's JSON files, the rows are gathered anew; without, the page alone is made.
"""

import json
import pathlib
import statistics
import sys

FOLDER = pathlib.Path(__file__).parent / "results" / "recall"
# What is put on the base, in the order of the page.
ADAPTERS = {
    "rivals": "",
    "keys16": "columns, K=16",
    "keys32": "columns, K=32",
    "keys64": "columns, K=64",
    "trained_m0": "columns, K=32, trained at m=0",
    "trained_m2": "columns, K=32, trained at m=2",
    "tokens8": "groups of tokens, K=8, trained",
    "indexer": "indexer, trained",
}
PARTS = {
    "distance": ("Eight keys by distance", "bytes between, at least"),
    "keys": ("Keys by their number, at least 128 bytes between", "keys"),
    "copy": ("Forty words of four letters by distance", "bytes between, at least"),
}


def load(path):
    return json.loads(path.read_text(encoding="utf-8"))


def gather(figures):
    """A row for each adapter, seed, attention and setting; pairs are of the documents of 8 keys."""
    rows = []
    for pairs in sorted(figures.glob("*.pairs.json")):
        name = pairs.name.split(".")[0]
        adapter, _, seed = name.partition("_seed")
        of_text = load(pairs)["rows"]
        for path in sorted(p for p in figures.glob(f"{name}.*_*.json") if p != pairs):
            part, number = path.name.split(".")[1].split("_")
            recall = load(path)["recall"]
            assert [r["attention"] for r in recall["rows"]] == [r["attention"] for r in of_text], path
            for row, text in zip(recall["rows"], of_text):
                rows.append({
                    "adapter": adapter, "seed": int(seed or 1), "attention": row["attention"], "part": part, "number": int(number),
                    "questions": recall["questions"], "documents": recall["documents"], "answers": row["answers"],
                    "right": row["right"], "standard_error": row["standard_error"],
                    "nats_per_token": row["nats_per_token"], "pairs_attended": text["pairs_attended"],
                    "perplexity": text["perplexity"],
                })
    return rows


def accuracy(rows):
    """Of one seed, or the mean of several and, in brackets, the least and the most."""
    right = [100 * row["right"] for row in rows]
    if len(right) == 1:
        return f"{right[0]:.1f}"
    return f"{statistics.mean(right):.1f} ({min(right):.0f} to {max(right):.0f})"


def part_table(rows, part):
    title, head = PARTS[part]
    numbers = sorted({r["number"] for r in rows if r["part"] == part})
    forms = {}
    for row in rows:
        if row["part"] == part:
            form = forms.setdefault((row["adapter"], row["attention"]), {})
            form.setdefault(row["number"], []).append(row)
    lines = [f"## {title}", "", "Right answers, per cent; in the last line how many were asked.", "",
             f"| on the base | attention | pairs | {' | '.join(str(n) for n in numbers)} |",
             f"|---|---|---|{'---|' * len(numbers)}"]
    for (adapter, attention), cells in sorted(forms.items(), key=lambda item: list(ADAPTERS).index(item[0][0])):
        share = 100 * statistics.mean(row["pairs_attended"] for row in next(iter(cells.values())))
        right = " | ".join(accuracy(cells[n]) for n in numbers)
        lines.append(f"| {ADAPTERS[adapter]} | {attention} | {share:.1f} % | {right} |")
    asked = next(iter(forms.values()))
    return lines + [f"| asked | | | {' | '.join(str(asked[n][0]['answers']) for n in numbers)} |", ""]


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "recall.jsonl"
    if len(sys.argv) > 1:
        rows = gather(pathlib.Path(sys.argv[1]))
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines = ["# Recall by distance and number of keys", "",
             "Made by `bench/recall_tables.py` from the rows that `bench/recall.sh` left (`recall.jsonl`); do not edit.",
             "Documents of 768 bytes that the base has not seen. An answer is a digit, or a word of four letters of which",
             "every one is right. Pairs: of the model's own, counted on 40 documents of 8 keys. Columns that are not",
             "trained: the mean of k-means from three seeds (K=64: one), in brackets the least and the most.", ""]
    for part in PARTS:
        lines += part_table(rows, part)
    (FOLDER / "README.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
