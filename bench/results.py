"""The history of measurements, a JSON object a line, and the table made from it.
`python3 bench/results.py [FOLDER]` makes the table again.
"""

import json
import sys
from pathlib import Path

HISTORY = "history.jsonl"
TABLE = "README.md"

INTRODUCTION = """# Measured

Made by `bench/results.py` from `history.jsonl`, which `bench/run.sh` appends to; do not edit. The
newest undisturbed measurement of each row. Times are best / median; "times as fast" is the other
side's time by ours, likewise; the ideal is the ratio of the pairs attended. Hard attention is given
each token's groups, drawn evenly: its time holds the sort and the merge, not the routing. Peak MiB
are the whole process's, ours / the other's. A measurement during which other processes took more
than a few percent of a core is not quoted.
"""


def append(folder, record):
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / HISTORY, "a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")


def read(folder):
    """Every record, oldest first. Raises ValueError with file and line for what is no record."""
    path = folder / HISTORY
    found = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
    return found


def ratios(record):
    """How many times as fast as each peer: (of the best times, of the medians)."""
    ours = record["sides"][0]
    return [
        (peer["ms_min"] / ours["ms_min"], peer["ms_median"] / ours["ms_median"])
        for peer in record["sides"][1:]
    ]


def number(x):
    """Three digits that mean something."""
    return f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def pair(best, median):
    return f"{number(best)} / {number(median)}"


def time_of(side):
    return pair(side["ms_min"], side["ms_median"])


def lines_of(record):
    """A record for the terminal."""
    if record["disturbed"]:
        yield f"{record['work']}: {disturbed(record)}"
        return
    yield record["work"]
    best = record.get("ideal_ratio")
    ideal = f" (ideal {number(best)})" if best else ""
    ours = record["sides"][0]
    yield f"  {ours['name']:<40} {time_of(ours)} ms"
    for peer, ratio in zip(record["sides"][1:], ratios(record)):
        yield f"  {peer['name']:<40} {time_of(peer)} ms, {pair(*ratio)} times as fast{ideal}"


def disturbed(record):
    return f"disturbed, others took {record['foreign_percent']:.0f} % of a core: not quoted"


def newest(records):
    """Of each row the newest undisturbed record, else the newest; in the order of first sight."""
    chosen = {}
    for record in records:
        known = chosen.get(record["work"])
        if known is None or known["disturbed"] or not record["disturbed"]:
            chosen[record["work"]] = record
    return list(chosen.values())


def setting_of(record):
    """What must agree for records to stand in one table."""
    machine = record["machine"]
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {record['threads']} threads, "
        f"{record['build']['isa']} kernels" + (", quick" if record["quick"] else "")
    )


def before(record, records):
    """The newest undisturbed record of the same work on the same kind of processor; else None."""
    same = [
        known
        for known in records
        if not known["disturbed"]
        and (known["work"], setting_of(known)) == (record["work"], setting_of(record))
    ]
    return same[-1] if same else None


def compared(record, known):
    """A line on our side's best times in two records, for the terminal."""
    if record["disturbed"]:
        return "  not compared: disturbed"
    if known is None:
        return "  nothing to compare with on this kind of processor"
    ours, then = record["sides"][0], known["sides"][0]
    return (
        f"  {'at ' + known['commit'] + ', ' + known['date'][:10]:<40} {time_of(then)} ms, "
        f"now {number(then['ms_min'] / ours['ms_min'])} times as fast"
    )


def memory_of(side):
    return f"{side['peak_rss_mib']:.0f}" if "peak_rss_mib" in side else ""


def rows_of(record):
    """The table's lines of one record: one for each peer."""
    work, when = record["work"], f"{record['date'][:10]} {record['commit']}"
    if record["disturbed"]:
        yield f"| {work} | {disturbed(record)} | | | | | | {when} |"
        return
    ours = record["sides"][0]
    ideal = number(record["ideal_ratio"]) if "ideal_ratio" in record else ""
    for peer, ratio in zip(record["sides"][1:], ratios(record)):
        memory = f"{memory_of(ours)} / {memory_of(peer)}" if memory_of(ours) else ""
        yield (
            f"| {work} | {time_of(ours)} | {peer['name']} | {time_of(peer)} | {pair(*ratio)} "
            f"| {ideal} | {memory} | {when} |"
        )


def table(records):
    """The page's text."""
    text = INTRODUCTION
    settings = {}
    for record in records:
        settings.setdefault(setting_of(record), []).append(record)
    for setting, its_records in settings.items():
        text += f"\n## {setting}\n\n"
        builds = {r["build"]["compiler"]: None for r in newest(its_records)}
        libraries = {
            f"{name} {version}": None
            for r in newest(its_records)
            for name, version in r.get("libraries", {}).items()
        }
        text += f"Built by {', '.join(builds)}."
        text += f" Peers: {', '.join(libraries)}.\n\n" if libraries else "\n\n"
        text += "| work | ours ms | peer | peer ms | times as fast | ideal | peak MiB | when |\n"
        text += "|---|---|---|---|---|---|---|---|\n"
        for record in newest(its_records):
            text += "".join(line + "\n" for line in rows_of(record))
    return text


def render(folder):
    if (folder / HISTORY).exists():
        (folder / TABLE).write_text(table(read(folder)), encoding="utf-8")


if __name__ == "__main__":
    render(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
