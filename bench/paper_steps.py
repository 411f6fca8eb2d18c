"""Prints what a comparison's runs logged of their groups while they trained, one JSON line for each run and
hundred steps: `python3 bench/paper_steps.py out/paper/dominance`. Figures are means over the logged steps;
largest_group and the entropies are means over layers, worst_layer is the largest group of any layer."""

import json
import pathlib
import sys

FIGURES = ("largest_group", "size_entropy", "assignment_entropy")


def mean(values):
    return round(sum(values) / len(values), 4)


def main(folder):
    runs = {}
    for line in (folder / "compare.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if not row["error"]:
            runs[row["hash"]] = (row["run"], row["seed"])
    for name, (run, seed) in runs.items():
        hundreds = {}
        lines = (folder / "runs" / name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        for record in map(json.loads, lines):
            if "largest_group" in record:
                hundreds.setdefault((record["step"] + 99) // 100 * 100, []).append(record)
        for step, records in sorted(hundreds.items()):
            row = {"run": run, "seed": seed, "step": step, "phase": records[-1].get("phase")}
            for figure in FIGURES:
                if figure in records[0]:
                    row[figure] = mean([r[figure] for r in records])
            row["worst_layer"] = mean([max(r["largest_group_layers"]) for r in records])
            print(json.dumps(row))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
