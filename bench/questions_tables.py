#!/usr/bin/env python3
"""Makes bench/results/questions/README.md from the rows that bench/questions.sh left beside it."""

import json
import math
import pathlib
import statistics

from result_page import cell, failures, mean_and_spread, read_rows, split_groups, texts_heading, write_page

FOLDER = pathlib.Path(__file__).parent / "results" / "questions"
PARTS = ("in_domain_search", "in_domain", "in_domain_documents", "adaptation_search", "adaptation", "from_scratch_search", "from_scratch", "ablations")


def loss(rows):
    """Of dense perplexity, in per cent, and its standard error over tokens."""
    nats = [row["nats_against_dense"] for row in rows if row.get("nats_against_dense") is not None]
    if not nats:
        return ""
    error = 100 * statistics.mean(row["nats_against_dense_error"] for row in rows)
    return f"{mean_and_spread([100 * math.expm1(n) for n in nats], '+.2f')} ± {error:.2f}"


def how(attention, routing):
    return f"{attention}, {routing}" if routing else attention


COLUMNS = {
    "trained": lambda rows: format(rows[0]["trainable_parameters"], ","),
    "attention": lambda rows: how(rows[0]["attention"], rows[0]["routing"]),
    "pairs": lambda rows: f"{100 * statistics.mean(row['pairs_attended'] for row in rows):.1f} %",
    "choosing": lambda rows: cell(rows, "pairs_choosing", ".1f", 100, " %"),
    "perplexity": lambda rows: cell(rows, "perplexity", ".3f"),
    "against dense, %": loss,
    "KL": lambda rows: cell(rows, "kl", ".4f"),
    "kept, far": lambda rows: cell(rows, "kept_far", ".1f", 100, " %"),
    "kept, all": lambda rows: cell(rows, "kept_all", ".1f", 100, " %"),
    "largest group": lambda rows: cell(rows, "largest_group", ".0f", 100, " %"),
    "seeds": lambda rows: str(len(rows)),
}


def table(groups):
    """A line for each run and attention; columns that no line has are left out."""
    lines = {key: {name: of(rows) for name, of in COLUMNS.items()} for key, rows in groups.items()}
    names = [name for name in COLUMNS if any(cells[name] for cells in lines.values())]
    return [f"| run | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"] + [
        f"| {run} | {' | '.join(cells[name] for name in names)} |" for (run, _, _), cells in lines.items()]


def recall_tables(part, rows):
    """For each set of questions, right answers by distance in tokens."""
    out = []
    for questions in dict.fromkeys(row["questions"] for row in rows):
        forms, distances = {}, {}
        for row in (r for r in rows if r["questions"] == questions):
            distance = "all" if row["to"] is None else f"{row['from']} to {row['to']}"
            forms.setdefault((row["run"], row["attention"], row["routing"]), {}).setdefault(distance, []).append(row)
            distances[distance] = row["answers"]
        out += [f"### {part}, {questions}: right answers by distance in tokens, per cent", "",
                f"| run | attention | {' | '.join(distances)} |", f"|---|---|{'---|' * len(distances)}"]
        for (run, attention, routing), cells in forms.items():
            out.append(f"| {run} | {how(attention, routing)} | {' | '.join(cell(cells[d], 'right', '.1f', 100) for d in distances)} |")
        out += [f"| asked | | {' | '.join(map(str, distances.values()))} |", ""]
    return out


def length_table():
    """B3 at several lengths: perplexity, over seeds, and share of the pairs of each form in length_*.json."""
    cells, first = {}, None
    for path in sorted(FOLDER.glob("length_*.json")):
        first = json.loads(path.read_text(encoding="utf-8"))
        groups = path.stem.removeprefix("length_").split("_seed")[0]
        for at in first["lengths"]:
            for row in at["rows"]:
                form = (groups if row["routing"] else "", row["attention"], row["routing"] or "")
                cells.setdefault(form, {}).setdefault(at["context"], []).append(row)
    if not cells:
        return []
    contexts = sorted({context for of in cells.values() for context in of})
    shown = lambda rows: f"{cell(rows, 'perplexity', '.2f')}, {100 * statistics.mean(row['pairs_attended'] for row in rows):.0f} %"
    return ["## length", "", "Perplexity (over seeds its deviation) and share of the pairs of the same model at several lengths; "
            f"{', '.join(first['texts'])};", f"stride half the length; {first['model']}, {first['compute']}.", "",
            f"| groups | attention | seeds | {' | '.join(f'{c:,}' for c in contexts)} |", f"|---|---|---|{'---|' * len(contexts)}"] + [
        f"| {groups} | {how(attention, routing)} | {len(of[contexts[0]])} | {' | '.join(shown(of[c]) for c in contexts)} |"
        for (groups, attention, routing), of in sorted(cells.items())] + [""]


def position_table():
    """Nats a token by what stands before it in its window, of position_*.json, by powers of two."""
    forms, counts, first = {}, {}, None
    for path in sorted(FOLDER.glob("position_*.json")):
        first = json.loads(path.read_text(encoding="utf-8"))
        for row in first["rows"]:
            sums = {}
            for bucket in row["by_position"]:
                octave = max(6, bucket["from"].bit_length() - 1)
                before = sums.get(octave, (0, 0.0))
                sums[octave] = (before[0] + bucket["tokens"], before[1] + bucket["tokens"] * bucket["nats_per_token"])
            name = path.stem.removeprefix("position_") if row["routing"] else ""
            forms[name, row["attention"]] = {octave: nats / tokens for octave, (tokens, nats) in sums.items()}
            counts = {octave: tokens for octave, (tokens, _) in sums.items()}
    if not forms:
        return []
    names = [f"{2 ** o if o > 6 else 0:,} to {2 ** (o + 1) - 1:,}" for o in counts]
    return ["## length, by position", "", f"Nats a token by how many stand before it in its window; context {first['context']:,}, "
            f"stride {first['stride']:,}; {first['model']}.", "", f"| groups | attention | {' | '.join(names)} |",
            f"|---|---|{'---|' * len(names)}"] + [
        f"| {groups} | {attention} | {' | '.join(f'{of[o]:.4f}' for o in counts)} |"
        for (groups, attention), of in forms.items()] + [f"| tokens | | {' | '.join(f'{c:,}' for c in counts.values())} |", ""]


def in_each_text(differences, most=8):
    if len(differences) <= most:
        return ", ".join(f"{d:+.4f}" for d in differences)
    return (f"{min(differences):+.4f} to {max(differences):+.4f}, mean {statistics.mean(differences):+.4f}, deviation "
            f"{statistics.stdev(differences):.4f}; lower in {sum(d < 0 for d in differences)} of {len(differences)}")


def claims_table():
    """What focus compare's claims came to, of all parts."""
    out = []
    for part in PARTS:
        path = FOLDER / f"{part}.jsonl"
        for row in sum(read_rows(path), []) if path.exists() else []:
            if "claim" not in row:
                continue
            difference = "" if row["difference"] is None else f"{row['difference']:+.4f}"
            if row["half_width"] is not None:
                difference += f" ± {row['half_width']:.4f}"
            documents = in_each_text(row["of_documents"])
            verdict = row["verdict"] + (" (one seed)" if row["seeds"] == 1 else "")
            out.append(f"| {row['claim']} | {row['claimed']} | **{verdict}** | {difference} | {row['seeds'] or ''} | {documents} | "
                       f"{part}, {row['asked']} |")
    if not out:
        return []
    return ["## Claims", "", "As `focus compare` holds them against its rows: the figure of one row less that of another with the same seed (nats a",
            "token where nothing else is said), the mean over seeds ± half of its 95 % interval by Student's t. Held where the whole",
            "interval is below the margin, not held where none of it is. In each text: means over seeds; of more than eight texts the least",
            "and the greatest, their mean and deviation, and in how many the difference is below zero.", "",
            "| claim | claimed elsewhere | | difference | seeds | in each text | asked |", "|---|---|---|---|---|---|---|"] + out + [""]


def part_table(part):
    rows, failed = read_rows(FOLDER / f"{part}.jsonl")
    rows = [row for row in rows if "claim" not in row]
    asked = [row for row in rows if "questions" in row]
    out = []
    for split, groups in split_groups([row for row in rows if "split" in row]).items():
        out += texts_heading(part, split, groups) + table(groups) + [""]
    out += recall_tables(part, asked)
    return out + failures(failed)


if __name__ == "__main__":
    write_page(FOLDER, ["# The study's questions", "",
                        "Made by `bench/questions_tables.py` from the rows that `bench/questions.sh` left (`*.jsonl`); do not",
                        "edit. Means over seeds, in brackets the standard deviation over seeds. Against dense: the paired",
                        "difference to dense attention of the same model on the same tokens, ± its standard error over tokens.",
                        "Choosing: what finding the pairs costs beside them, in pairs (docs/method.md).",
                        "Kept: of what distance gains, (window - row) / (window - dense) in nats, the window being the run's own local one",
                        "with its first tokens, on far tokens and on all. Speeds in the rows are of a busy machine and claim nothing.",
                        ""] + claims_table(), PARTS, part_table, length_table() + position_table())
