#!/usr/bin/env python3
"""Tests the claims of the study on the rows of `focus compare`.

  python3 bench/study/verdicts.py CLAIMS ROWS [--out FILE.md]

CLAIMS holds NAME.toml, lists of claims; ROWS holds NAME.jsonl, the compare.jsonl of the same name. A claim says that a
figure of the row `less` is below that of the row `than` plus `margin` (0):

  [[claims]]
  claim = "in words"
  claimed = "who claims it, with figures"
  less = {run = "...", attention = "soft", routing = "carried"}
  than = {run = "...", attention = "dense"}
  on = "target"            # split or task; by default valid
  figure = "nats"          # the default, the log of the perplexity; or a column of the rows
  margin = 0.01
  not_testable = "why"     # instead of less and than
"""

import argparse
import json
import math
import pathlib
import statistics
import tomllib

HEAD = """# Claims

Made by `bench/study/verdicts.py`; do not edit. The figure of one row less that of another with the same seed (nats a token
unless stated), the mean over seeds ± half of its 95 % interval by Student's t. Held: the whole interval is below the
margin. Not held: none of it is. By text: means over seeds; of more than eight texts the least and the greatest, their mean
and deviation, and in how many texts the difference is below zero.

| claim | elsewhere | verdict | difference | seeds | by text | part, rows |
|---|---|---|---|---|---|---|
"""
# Of a two-sided 95 % interval, by degrees of freedom; beyond the list a formula is right to a thousandth.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def student_t(degrees):
    return STUDENT[degrees - 1] if degrees <= len(STUDENT) else 1.96 + 2.5 / degrees


def figure_of(row, figure):
    if figure != "nats":
        return row.get(figure)
    return None if row.get("perplexity") is None else math.log(row["perplexity"])


def side(rows, wanted, on):
    """The rows of one side by seed, of a seed the last, and whether a seed has several."""
    found, several = {}, False
    for row in rows:
        place = row.get("split") or row.get("task") or (None if row.get("to") else row.get("questions"))
        if row.get("error") or (row["run"], row["attention"], place) != (wanted["run"], wanted["attention"], on):
            continue
        routing = row.get("routing") or ""
        if wanted.get("routing") and routing.removesuffix(" (not causal)") != wanted["routing"]:
            continue
        several = several or row["seed"] in found
        found[row["seed"]] = row
    return found, several


def paired(less, than):
    """Rows of equal seeds; a single row of one side beside every row of the other."""
    if len(than) == 1:
        return [(row, *than.values()) for row in less.values()]
    if len(less) == 1:
        return [(*less.values(), row) for row in than.values()]
    return [(row, than[seed]) for seed, row in sorted(less.items()) if seed in than]


def by_document(pairs):
    """Means over pairs of each text's difference; empty where a row lacks them."""
    texts = [(a.get("nats_of_documents") or [], b.get("nats_of_documents") or []) for a, b in pairs]
    if len({len(each) for pair in texts for each in pair}) != 1:
        return []
    return [sum((a[i] - b[i]) / len(pairs) for a, b in texts) for i in range(len(texts[0][0]))]


def name_of(wanted):
    return ", ".join(wanted[key] for key in ("run", "attention", "routing") if wanted.get(key))


def outcome(claim, rows):
    """What became of a claim: its verdict, the differences by pair and by text, and the question asked."""
    if "not_testable" in claim:
        return {"verdict": "not testable here", "asked": claim["not_testable"], "differences": [], "by_text": []}
    on, figure, margin = claim.get("on", "valid"), claim.get("figure", "nats"), claim.get("margin", 0)
    by = f" {'+' if margin > 0 else '-'} {abs(margin):g}" if margin else ""
    asked = f"{on}, {figure}: {name_of(claim['less'])} < {name_of(claim['than'])}{by}"
    sides = [side(rows, claim[key], on) for key in ("less", "than")]
    reason = ""
    for (found, several), key in zip(sides, ("less", "than")):
        if several:
            reason = f"several rows are {claim[key]['attention']}: add routing"
        if not found:
            reason = f"no row {name_of(claim[key])}"
    pairs = paired(sides[0][0], sides[1][0])
    figures = [(figure_of(a, figure), figure_of(b, figure)) for a, b in pairs]
    if not reason and not pairs:
        reason = "no common seed"
    if not reason and any(one is None for pair in figures for one in pair):
        reason = f"rows without {figure}"
    if reason:
        return {"verdict": "not measured", "asked": f"{asked}; {reason}", "differences": [], "by_text": []}
    differences = [a - b for a, b in figures]
    seeds, mean, half = len(differences), statistics.fmean(differences), 0
    if seeds > 1:
        half = student_t(seeds - 1) * statistics.stdev(differences) / math.sqrt(seeds)
    verdict = "held" if mean + half < margin else "not held" if mean - half >= margin else "undecided"
    return {"verdict": verdict, "asked": asked, "differences": differences, "mean": mean, "half_width": half,
            "by_text": by_document(pairs) if figure == "nats" else []}


def by_text(differences, most=8):
    if len(differences) <= most:
        return ", ".join(f"{d:+.4f}" for d in differences)
    return (f"{min(differences):+.4f} to {max(differences):+.4f}, mean {statistics.mean(differences):+.4f}, deviation "
            f"{statistics.stdev(differences):.4f}; lower in {sum(d < 0 for d in differences)} of {len(differences)}")


def line(part, claim, rows):
    """A claim's line of the table."""
    done = outcome(claim, rows)
    seeds = len(done["differences"])
    verdict = done["verdict"] + (" (one seed)" if seeds == 1 else "")
    difference = f"{done['mean']:+.4f}" if seeds else ""
    if seeds > 1:
        difference += f" ± {done['half_width']:.4f}"
    return (f"| {claim['claim']} | {claim.get('claimed', '')} | **{verdict}** | {difference} | {seeds or ''} "
            f"| {by_text(done['by_text'])} | {part}, {done['asked']} |")


def verdicts(claims, rows):
    """Lines of all claims of a folder whose rows are there."""
    lines = []
    for path in sorted(claims.glob("*.toml")):
        of_part = rows / f"{path.stem}.jsonl"
        if of_part.exists():
            read = [json.loads(text) for text in of_part.read_text(encoding="utf-8").splitlines()]
            lines += [line(path.stem, claim, read)
                      for claim in tomllib.loads(path.read_text(encoding="utf-8"))["claims"]]
    return lines


def write(path, claims, rows):
    """The table as a page, where there is any line."""
    lines = verdicts(claims, rows)
    if lines:
        path.write_text(HEAD + "".join(each + "\n" for each in lines), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claims", type=pathlib.Path)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    o = parser.parse_args()
    if o.out:
        write(o.out, o.claims, o.rows)
    else:
        print("\n".join(verdicts(o.claims, o.rows)))


if __name__ == "__main__":
    main()
