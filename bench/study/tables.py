#!/usr/bin/env python3
"""Makes bench/study/tables from the rows of the study.

  python3 bench/study/tables.py ROWS [PART...] [--runs FOLDER] [--out FOLDER]

ROWS holds PART.jsonl, the rows of `focus compare` (run.sh writes them), length_*.json and position_*.json (for the part
`length`) and recall figures (recall.sh, for the part `recall`). Without PART it makes every table that has rows, and by
verdicts.py the table of claims. --runs: the folder of a comparison's runs, for the size of the largest group in the course of training.
"""

import argparse
import json
import math
import pathlib
import statistics

import verdicts

HEAD = """Made by `bench/study/tables.py` from the rows of `bench/study/run.sh`; do not edit. Means over seeds, with the
standard deviation over seeds in brackets. *Density*: share of the causal pairs that are computed. *Against dense*: the
paired difference to dense attention of the same model on the same tokens in per cent of perplexity, ± its standard error
over tokens. *Selection*: the cost of selecting keys, in pair equivalents (docs/method.md). *Retained*: share of the gain
of distance, (window - row) / (window - dense) in nats, on long-range tokens and on all; the window is the run's own local
window with its first tokens.
"""
RECALL_HEAD = """Made by `bench/study/tables.py` from the figures of `bench/study/recall.sh`; do not edit. Documents of 768 bytes that
the base has not seen. An answer is a digit, or a word of which all four letters must be right. *Density*: share of the
model's own pairs, counted on 40 documents of 8 keys. Groups of keys that are not trained: mean over three seeds of
k-means (K=64: one), with the least and the most in brackets.
"""
STEPS = (100, 400, 800, 1200, 1600)


def read_rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def mean_and_spread(values, form):
    """The mean and, in brackets, the standard deviation over seeds."""
    if len(values) == 1:
        return format(values[0], form)
    return f"{statistics.mean(values):{form}} ({statistics.stdev(values):{form.removeprefix('+')}})"


def cell(rows, key, form, scale=1, unit=""):
    """mean_and_spread of `scale` times the values of `key`; empty where no row has it."""
    values = [scale * row[key] for row in rows if row.get(key) is not None]
    return mean_and_spread(values, form) + unit if values else ""


def loss(rows):
    """Loss against dense perplexity, in per cent, and its standard error over tokens."""
    nats = [row["nats_against_dense"] for row in rows if row.get("nats_against_dense") is not None]
    if not nats:
        return ""
    error = 100 * statistics.mean(row["nats_against_dense_error"] for row in rows)
    return f"{mean_and_spread([100 * math.expm1(n) for n in nats], '+.2f')} ± {error:.2f}"


def form_of(row):
    """Attention, the balance of its groups, and whether it is causal."""
    balance = row.get("routing")
    return row["attention"] + (f", {balance}" if balance else "") + ("" if row.get("causal", True) else " (not causal)")


COLUMNS = {
    "trained": lambda rows: format(rows[0]["trainable_parameters"], ","),
    "attention": lambda rows: form_of(rows[0]),
    "density": lambda rows: f"{100 * statistics.mean(row['pairs_attended'] for row in rows):.1f} %",
    "selection": lambda rows: cell(rows, "pairs_choosing", ".1f", 100, " %"),
    "perplexity": lambda rows: cell(rows, "perplexity", ".3f"),
    "against dense, %": loss,
    "KL": lambda rows: cell(rows, "kl", ".4f"),
    "retained, long-range": lambda rows: cell(rows, "kept_far", ".1f", 100, " %"),
    "retained, all": lambda rows: cell(rows, "kept_all", ".1f", 100, " %"),
    "largest group": lambda rows: cell(rows, "largest_group", ".0f", 100, " %"),
    "seeds": lambda rows: str(len(rows)),
}


def loss_tables(part, rows):
    """For each split a line for each run and attention; columns without a value are left out."""
    splits = {}
    for row in rows:
        splits.setdefault(row["split"], {}).setdefault((row["run"], form_of(row)), []).append(row)
    out = []
    for split, groups in splits.items():
        first = next(iter(groups.values()))[0]
        lines = {key: {name: of(members) for name, of in COLUMNS.items()} for key, members in groups.items()}
        names = [name for name in COLUMNS if any(cells[name] for cells in lines.values())]
        out += [f"## {part}, {split}", "",
                f"{first['texts']}; {first['tokens_scored']:,} tokens; context {first['context']}, stride "
                f"{first['stride']}; tokenizer {first['tokenizer'].split()[0]}.", "",
                f"| run | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
        out += [f"| {run} | {' | '.join(cells[name] for name in names)} |" for (run, _), cells in lines.items()]
        out.append("")
    return out


def recall_rows_tables(rows):
    """For each set of questions, right answers by distance in tokens."""
    out = []
    for questions in dict.fromkeys(row["questions"] for row in rows):
        forms, distances = {}, {}
        for row in (r for r in rows if r["questions"] == questions):
            distance = "all" if row["to"] is None else f"{row['from']} to {row['to']}"
            forms.setdefault((row["run"], form_of(row)), {}).setdefault(distance, []).append(row)
            distances[distance] = row["answers"]
        out += [f"## {questions}: right answers by distance in tokens, per cent", "",
                f"| run | attention | {' | '.join(distances)} |", f"|---|---|{'---|' * len(distances)}"]
        for (run, attention), cells in forms.items():
            out.append(f"| {run} | {attention} | "
                       f"{' | '.join(cell(cells[d], 'right', '.1f', 100) for d in distances)} |")
        out += [f"| asked | | {' | '.join(map(str, distances.values()))} |", ""]
    return out


def task_tables(rows):
    """For each benchmark: score, and what differs from the dense base on the same items."""
    out = []
    for task in dict.fromkeys(row["task"] for row in rows):
        of_task = [row for row in rows if row["task"] == task]
        forms = {}
        for row in of_task:
            forms.setdefault((row["run"], row["attention"]), []).append(row)
        out += [f"## {task}, {of_task[0]['items']} items", "",
                "| run | attention | pairs touched | acc, % | acc_norm, % | same choice, % | mean \\|d log p\\| | KL |",
                "|---|---|---|---|---|---|---|---|"]
        for (run, attention), of in forms.items():
            out.append(f"| {run} | {attention} | {cell(of, 'pairs_touched', '.1f', 100, ' %')} | {cell(of, 'acc', '.1f', 100)} "
                       f"| {cell(of, 'acc_norm', '.1f', 100)} | {cell(of, 'same_choice', '.1f', 100)} "
                       f"| {cell(of, 'log_prob_distance', '.2f')} | {cell(of, 'kl', '.4f')} |")
        out.append("")
    return out


def steps_table(rows, runs):
    """The largest group in the course of training, by metrics.jsonl: means over the hundred steps before each."""
    names = {row["hash"]: (row["run"], row["seed"]) for row in rows if not row.get("error")}
    figures = {}
    for name, (run, _) in names.items():
        for record in read_rows(runs / name / "metrics.jsonl"):
            if "largest_group" in record:
                step = (record["step"] + 99) // 100 * 100
                seeds = figures.setdefault(run, {}).setdefault(step, {}).setdefault(name, [])
                seeds.append((record["largest_group"], max(record["largest_group_layers"])))
    steps = [step for step in STEPS if figures and all(step in of for of in figures.values())]
    if not steps:
        return []
    out = ["## The largest group in the course of training: mean over layers / the worst layer", "",
           f"| | {' | '.join(f'step {step}' for step in steps)} |", f"|---|{'---|' * len(steps)}"]
    for run, of_run in figures.items():
        cells = []
        for step in steps:
            seeds = [[100 * statistics.mean(values) for values in zip(*logged)] for logged in of_run[step].values()]
            cells.append(" / ".join(mean_and_spread([seed[i] for seed in seeds], ".1f") + " %" for i in (0, 1)))
        out.append(f"| {run} | {' | '.join(cells)} |")
    return out + [""]


def length_table(folder):
    """B3 at several lengths: perplexity and density of each form in length_*.json."""
    cells, first = {}, None
    for path in sorted(folder.glob("length_*.json")):
        first = json.loads(path.read_text(encoding="utf-8"))
        groups = path.stem.removeprefix("length_").split("_seed")[0]
        for at in first["lengths"]:
            for row in at["rows"]:
                form = (groups if row["routing"] else "", form_of(row))
                cells.setdefault(form, {}).setdefault(at["context"], []).append(row)
    if not cells:
        return []
    contexts = sorted({context for of in cells.values() for context in of})

    def shown(rows):
        return f"{cell(rows, 'perplexity', '.2f')}, {100 * statistics.mean(row['pairs_attended'] for row in rows):.0f} %"

    texts = ", ".join(pathlib.Path(text).name for text in first["texts"])
    return ["## Perplexity and density by length", "",
            f"{texts}; stride half the length; {pathlib.Path(first['model']).parent.name}, {first['compute']}.", "",
            f"| groups | attention | seeds | {' | '.join(f'{c:,}' for c in contexts)} |",
            f"|---|---|---|{'---|' * len(contexts)}"] + [
        f"| {groups} | {attention} | {len(of[contexts[0]])} | {' | '.join(shown(of[c]) for c in contexts)} |"
        for (groups, attention), of in sorted(cells.items())] + [""]


def position_table(folder):
    """Nats a token by the number of tokens before it in its window, by powers of two, of position_*.json."""
    forms, counts, first = {}, {}, None
    for path in sorted(folder.glob("position_*.json")):
        first = json.loads(path.read_text(encoding="utf-8"))
        for row in first["rows"]:
            sums = {}
            for bucket in row["by_position"]:
                octave = max(6, bucket["from"].bit_length() - 1)
                tokens, nats = sums.get(octave, (0, 0.0))
                sums[octave] = (tokens + bucket["tokens"], nats + bucket["tokens"] * bucket["nats_per_token"])
            name = path.stem.removeprefix("position_") if row["routing"] else ""
            forms[name, row["attention"]] = {octave: nats / tokens for octave, (tokens, nats) in sums.items()}
            counts = {octave: tokens for octave, (tokens, _) in sums.items()}
    if not forms:
        return []
    names = [f"{2 ** o if o > 6 else 0:,} to {2 ** (o + 1) - 1:,}" for o in counts]
    return ["## Nats a token by the number of tokens before it", "",
            f"Context {first['context']:,}, stride {first['stride']:,}.", "",
            f"| groups | attention | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"] + [
        f"| {groups} | {attention} | {' | '.join(f'{of[o]:.4f}' for o in counts)} |"
        for (groups, attention), of in forms.items()] + [
        f"| tokens | | {' | '.join(f'{c:,}' for c in counts.values())} |", ""]


# The adapters of recall.sh, in the order of its table.
RECALL_ADAPTERS = {
    "baselines": "",
    "keys16": "groups of keys, K=16",
    "keys32": "groups of keys, K=32",
    "keys64": "groups of keys, K=64",
    "trained_m0": "groups of keys, K=32, trained at m=0",
    "trained_m2": "groups of keys, K=32, trained at m=2",
    "tokens8": "groups of tokens, K=8, trained",
    "indexer": "indexer, trained",
}
RECALL_PARTS = {
    "distance": "Eight keys, by bytes between",
    "keys": "Keys by their number, at least 128 bytes between",
    "copy": "Forty words of four letters, by bytes between",
}


def recall_rows(folder):
    """A row for each adapter, seed, attention and setting, of ADAPTER.PART_NUMBER.json and ADAPTER.pairs.json."""
    rows = []
    for pairs in sorted(folder.glob("*.pairs.json")):
        name = pairs.name.split(".")[0]
        of_text = json.loads(pairs.read_text(encoding="utf-8"))["rows"]
        for path in sorted(p for p in folder.glob(f"{name}.*_*.json") if p != pairs):
            part, number = path.name.split(".")[1].split("_")
            recall = json.loads(path.read_text(encoding="utf-8"))["recall"]["rows"]
            assert [r["attention"] for r in recall] == [r["attention"] for r in of_text], path
            rows += [{**row, "adapter": name.split("_seed")[0], "part": part, "number": int(number),
                      "pairs_attended": text["pairs_attended"]} for row, text in zip(recall, of_text)]
    return rows


def accuracy(rows):
    """Of one seed, or the mean of several and, in brackets, the least and the most."""
    right = [100 * row["right"] for row in rows]
    if len(right) == 1:
        return f"{right[0]:.1f}"
    return f"{statistics.mean(right):.1f} ({min(right):.0f} to {max(right):.0f})"


def recall_tables(rows):
    out = []
    for part, title in RECALL_PARTS.items():
        of_part = [row for row in rows if row["part"] == part]
        numbers = sorted({row["number"] for row in of_part})
        forms = {}
        for row in sorted(of_part, key=lambda row: list(RECALL_ADAPTERS).index(row["adapter"])):
            forms.setdefault((row["adapter"], row["attention"]), {}).setdefault(row["number"], []).append(row)
        out += [f"## {title}", "", "Right answers, per cent; the last line is the number of questions.", "",
                f"| adapter | attention | density | {' | '.join(map(str, numbers))} |", f"|---|---|---|{'---|' * len(numbers)}"]
        for (adapter, attention), cells in forms.items():
            density = 100 * statistics.mean(row["pairs_attended"] for row in next(iter(cells.values())))
            out.append(f"| {RECALL_ADAPTERS[adapter]} | {attention} | {density:.1f} % | "
                       f"{' | '.join(accuracy(cells[n]) for n in numbers)} |")
        asked = next(iter(forms.values()), {})
        out += [f"| asked | | | {' | '.join(str(asked[n][0]['answers']) for n in numbers)} |", ""] if asked else []
    return out


def part_table(part, folder, runs=None):
    if part == "length":
        return length_table(folder) + position_table(folder)
    every = read_rows(folder / f"{part}.jsonl")
    if part == "recall":
        return recall_tables(every)
    rows = [row for row in every if not row.get("error")]
    out = loss_tables(part, [row for row in rows if "split" in row and row.get("perplexity") is not None])
    out += task_tables([row for row in rows if "task" in row])
    out += recall_rows_tables([row for row in rows if "questions" in row])
    out += steps_table(rows, runs) if runs else []
    return out + [f"Failed: {row['run']}, seed {row['seed']}: {row['error']}" for row in every if row.get("error")]


def write(path, title, head, lines):
    if lines:
        text = "\n".join([f"# {title}", "", head, *lines]).rstrip() + "\n"
        path.write_text(text, encoding="utf-8")


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", metavar="part")
    parser.add_argument("--runs", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent / "tables")
    return parser.parse_args()


def main():
    options = parsed()
    figures = options.rows / "recall"
    if figures.is_dir() and options.parts in ([], ["recall"]):
        lines = "".join(json.dumps(row) + "\n" for row in recall_rows(figures))
        (options.rows / "recall.jsonl").write_text(lines, encoding="utf-8")
    parts = options.parts or [*(path.stem for path in sorted(options.rows.glob("*.jsonl"))), "length"]
    options.out.mkdir(parents=True, exist_ok=True)
    for part in parts:
        head = RECALL_HEAD if part == "recall" else HEAD
        write(options.out / f"{part}.md", part, head, part_table(part, options.rows, options.runs))
    # Claims of parts that have no rows here would be lost.
    if not options.parts:
        verdicts.write(options.out / "claims.md", pathlib.Path(__file__).parent / "claims", options.rows)


if __name__ == "__main__":
    main()
