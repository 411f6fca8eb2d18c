#!/usr/bin/env python3
"""Finds the settings with which each attention has a given density, its share of the causal pairs.

  python3 bench/study/pairs.py BASE --train TEXT --text TEXT --context 512 [--shares 12.5,25,35,50]

It varies one number of each form (window, pages, blocks, keys), measures the density on the first tokens of TEXT with
`focus eval`, and prints the attention specs with the nearest densities as lists for the `attentions` of a config such as
configs/equal_pairs.yaml. It counts pairs and never reads a loss; groups of keys are fitted on --train with seed 1.
"""

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

FOCUS = os.environ.get("FOCUS", "build/release/focus")
# The values of the one number, `{}`, for each form.
WINDOWS = (0, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
KEYS = (0, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
BASELINES = {
    "window with first tokens": ("sink_window:{}", WINDOWS),
    "Quest": ("quest:{}:page_size=8:local_window=16", (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96)),
    "MoBA": ("moba:{}:block_size=16", (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)),
    "SparQ": ("sparq:{}", KEYS[2:]),
    "MagicPIG": ("magicpig:6:tables={}", (4, 8, 16, 24, 32, 48, 64, 96, 128, 192)),
    "indexer": ("indexer:{}:local_window=20", KEYS),
    "oracle": ("oracle:{}:local_window=20", KEYS),
    "oracle, heads together": ("oracle:{}:local_window=20:heads=shared", KEYS),
    "random groups": ("random_groups:GROUPS:local_window={}", WINDOWS),
    "Routing Transformer": ("routing_transformer:GROUPS:shared_qk=false:local_window={}", WINDOWS),
}
GROUPS = {6: 32, 12: 16, 12.5: 16, 25: 8, 35: 4, 50: 3}  # of those two, by share


def run(*arguments):
    subprocess.run([FOCUS, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def shares(specs, base, options, adapter):
    """Density of each attention spec, in per cent."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.json"
        run("eval", "--bos", "always", base, "--adapter", adapter, "--attention", ",".join(specs), "--json", figures, *options)
        rows = json.loads(figures.read_text(encoding="utf-8"))["rows"]
    assert len(rows) == len(specs), (len(rows), specs)
    return [100 * row["pairs_attended"] for row in rows]


def nearest(form, numbers, target, measure, known):
    """The number with the nearest density: a coarse grid first, then steps between neighbours."""
    if not known:
        known.update(zip(numbers, measure([form.format(n) for n in numbers])))
    for _ in range(3):
        below = max((n for n in known if known[n] <= target), default=None)
        above = min((n for n in known if known[n] > target), default=None)
        if below is None or above is None or above - below <= 1:
            break
        part = (target - known[below]) / (known[above] - known[below])
        guess = min(max(round(below + part * (above - below)), below + 1), above - 1)
        known[guess] = measure([form.format(guess)])[0]
    best = min(known, key=lambda n: abs(known[n] - target))
    return form.format(best), known[best]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("--train", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=2049)
    parser.add_argument("--shares", default="12.5,25,35,50")
    parser.add_argument("--block", type=int, default=1)
    parser.add_argument("--groups", default="16,32,64", help="of keys")
    parser.add_argument("--read", default="0,1,2,4", help="groups that a query selects")
    parser.add_argument("--rest", default="summary", choices=["summary", "drop"])
    parser.add_argument("--baselines", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--indexer", help="an indexer's file, trained on the base")
    arguments = parser.parse_args()
    targets = [float(share) for share in arguments.shares.split(",")]
    rest = "" if arguments.rest == "summary" else ":rest=drop"
    options = ["--text", arguments.text, "--context", arguments.context, "--max-tokens", arguments.tokens]
    with tempfile.TemporaryDirectory() as folder:
        for groups in arguments.groups.split(","):
            adapter = Path(folder) / f"{groups}.h5"
            run("fit", "--bos", "always", arguments.base, "--text", arguments.train, "--num-groups", groups, "--context",
                arguments.context, "--out", adapter)
            for m in arguments.read.split(","):
                form = f"summary:{m}{rest}:block={arguments.block}:local_window={{}}"
                report(f"K={groups} m={m}", form, WINDOWS, targets,
                       lambda specs, a=adapter: shares(specs, arguments.base, options, a))
        for name, (form, numbers) in BASELINES.items() if arguments.baselines else ():
            if name == "indexer" and not arguments.indexer:
                continue
            adapter = arguments.indexer if name == "indexer" else Path(folder) / f"{groups}.h5"
            report(name, form, numbers, targets,
                   lambda specs, a=adapter: shares(specs, arguments.base, options, a))


def report(name, form, numbers, targets, measure):
    specs, known = [], {}  # shares by form and number
    for target in targets:
        with_groups = form.replace("GROUPS", str(GROUPS.get(target, 8)))
        spec, share = nearest(with_groups, numbers, target, measure, known.setdefault(with_groups, {}))
        if abs(share - target) <= 2:
            specs.append((spec, share))
    listed = ", ".join(f'"{spec}"' for spec, _ in specs)
    print(f"  # {name}: {', '.join(f'{share:.1f} %' for _, share in specs)}\n    attentions: [{listed}]", flush=True)


if __name__ == "__main__":
    main()
