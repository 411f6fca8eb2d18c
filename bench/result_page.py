"""What the pages of tables beside recorded rows have in common."""

import json
import statistics


def read_rows(path):
    """The rows of a .jsonl that have figures, and those of runs that failed."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [r for r in rows if not r.get("error")], [r for r in rows if r.get("error")]


def split_groups(rows):
    """For each split of the texts, in their order: its name and its rows by (run, attention, routing)."""
    splits = {}
    for row in rows:
        groups = splits.setdefault(row["split"], {})
        groups.setdefault((row["run"], row["attention"], row["routing"]), []).append(row)
    return splits


def mean_and_spread(values, form):
    """The mean and, in brackets, the standard deviation over seeds."""
    if len(values) == 1:
        return format(values[0], form)
    return f"{statistics.mean(values):{form}} ({statistics.stdev(values):{form}})"


def cell(rows, key, form, scale=1, unit=""):
    """mean_and_spread of `scale` times what the rows that know `key` say of it; empty where none does."""
    values = [scale * row[key] for row in rows if row.get(key) is not None]
    return mean_and_spread(values, form) + unit if values else ""


def failures(failed):
    return [f"Failed: {r['run']}, seed {r['seed']}: {r['error']}" for r in failed]


def texts_heading(part, split, groups):
    """Lines that say what the rows of a split were measured on."""
    first = next(iter(groups.values()))[0]
    return [f"## {part}, {split}", "",
            f"{first['texts']}; {first['tokens_scored']:,} tokens; context {first['context']}, stride "
            f"{first['stride']}; tokenizer {first['tokenizer'].split()[0]}.", ""]


def write_page(folder, head, parts, part_table, tail=()):
    """folder/README.md: `head`, then part_table(part), lines, of each part that has rows, then `tail`."""
    lines = list(head)
    for part in parts:
        if (folder / f"{part}.jsonl").exists():
            lines += part_table(part)
    lines += tail
    (folder / "README.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
