"""Measures ours and the peers alternately on one machine and appends what came out to
bench/results/history.jsonl, from which bench/results/README.md is made. Called by bench/run.sh.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import comparison
import machine
import results
import rows


class MeasurementError(Exception):
    """A side could not be measured; says which and why."""


def measured(side, options):
    """One run of a side on a machine as quiet as it gets: a disturbed run is tried again."""
    for attempt in range(options.tries):
        machine.wait_until_quiet(options.wait)
        try:
            run = machine.run(side.command, side.environment)
        except OSError as error:
            raise MeasurementError(f"{side.name}: {error}") from error
        if run.status != 0:
            why = (run.stderr.strip() or run.stdout.strip()).splitlines()[-1:]
            raise MeasurementError(f"{side.name}: status {run.status}: {' '.join(why)}")
        if not run.disturbed or attempt == options.tries - 1:
            break
    try:
        return run, side.read(run)
    except (OSError, ValueError, KeyError) as error:
        raise MeasurementError(f"{side.name}: unreadable figures: {error!r}") from error


def measure_row(row, options):
    """All sides in turn, `rounds` times: ours, peers, ours, peers. The best of all rounds and the
    median of the rounds' medians. A peer that fails is left out of the record, which says why."""
    taken = {side.name: [] for side in row.sides}
    not_measured = {}
    try:
        row.prepare()
    except (OSError, subprocess.CalledProcessError) as error:
        raise MeasurementError(f"what the sides read cannot be made: {error}") from error
    for _ in range(options.rounds):
        for side in row.sides:
            if side.name in not_measured:
                continue
            try:
                taken[side.name].append(measured(side, options))
            except MeasurementError as error:
                if side is row.sides[0]:
                    raise
                not_measured[side.name] = str(error)
    taken = {name: runs for name, runs in taken.items() if name not in not_measured}
    check_same_size({name: both[0][1] for name, both in taken.items()})
    runs = [run for both in taken.values() for run, _ in both]
    record = {
        "group": row.group,
        "work": row.work,
        "sides": [pooled(name, both) for name, both in taken.items()],
        "not_measured": not_measured,
        "libraries": {},
        **disturbance(runs),
    }
    for both in taken.values():
        record["libraries"].update(both[0][1].get("libraries", {}))
    if row.ideal_from_pairs and len(record["sides"]) > 1:
        record["ideal_ratio"] = record["sides"][1]["pairs"] / record["sides"][0]["pairs"]
    return record


def check_same_size(figures):
    """Sides that say how many parameters their model has must have the same model: positions that
    one has and another has not are less than a hundredth."""
    sizes = {name: f["parameters"] for name, f in figures.items() if "parameters" in f}
    if sizes and max(sizes.values()) > 1.01 * min(sizes.values()):
        raise MeasurementError(f"models of different sizes are no comparison: {sizes}")


def pooled(name, runs):
    """One side's figures over its rounds, [(machine.Run, figures)]."""
    every = [figures for _, figures in runs]
    side = {
        "name": name,
        "ms_min": min(f["ms_min"] for f in every),
        "ms_median": statistics.median(f["ms_median"] for f in every),
    }
    for key in ("gflops", "tokens_per_second", "peak_rss_mib", "pairs", "parameters"):
        if key in every[0]:
            side[key] = max(f[key] for f in every)
    side["foreign_percent"] = disturbance([run for run, _ in runs])["foreign_percent"]
    return side


def disturbance(runs):
    return {
        "disturbed": any(run.disturbed for run in runs),
        "foreign_percent": round(max(run.foreign_percent for run in runs), 1),
    }


def measure_gemm(settings, options):
    """gemm_peers takes turns itself: one run, a record for each product."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gemm.json"
        command = [str(comparison.BUILD / "gemm_peers"), "--json", str(file)]
        if settings.quick:
            command += ["--repeats", "3", "--seconds", "0.01", "--small-only"]

        def read(_run):
            return json.loads(file.read_text(encoding="utf-8"))

        side = comparison.Side("gemm_peers", command, read, comparison.our_environment(settings))
        run, document = measured(side, options)
    for product in document["products"]:
        work = f"{product['product']}, {product['shape']} (m x k x n)"
        yield {"group": "gemm", "work": work, "sides": product["peers"], **disturbance([run])}


def build_facts(settings):
    """Instruction set and compiler, as the benchmarks' own program says."""
    side = comparison.kernel("focus", "rms_norm/forward/T:1024", settings)
    run = machine.run(side.command, side.environment)
    if run.status != 0:
        raise MeasurementError(f"{side.command[0]}: {run.stderr.strip()}")
    return side.read(run)["build"]


def commit():
    """The checkout's commit, with "+" where files differ from it."""

    def git(*arguments):
        done = subprocess.run(
            ["git", *arguments], cwd=comparison.ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!bench/results")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def peers_python():
    """The interpreter that has the peers: FOCUS_PEERS_PYTHON, or that of bench/.venv, made if need
    be."""
    given = os.environ.get("FOCUS_PEERS_PYTHON")
    if given:
        return given
    subprocess.run(["bash", str(comparison.PEERS / "install.sh")], check=True)
    return str(comparison.ROOT / "bench" / ".venv" / "bin" / "python")


def parsed(arguments):
    words = [*rows.GROUPS, "gemm"]
    parser = argparse.ArgumentParser(prog="bench/run.sh", description=__doc__)
    parser.add_argument("what", nargs="*", metavar="what", help=f"{', '.join(words)}; all if none")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short lengths, one round: does it all run? Into out/bench instead of bench/results",
    )
    parser.add_argument("--only", metavar="TEXT", default="", help="rows whose work contains it")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, help="turns of ours and the peers (3; quick 1)")
    parser.add_argument("--repeats", type=int, help="of a measurement in its process (3; quick 2)")
    parser.add_argument("--tries", type=int, help="for a run that others disturb (3; quick 1)")
    parser.add_argument("--wait", type=float, help="seconds for a quiet machine (120; quick 0)")
    parser.add_argument(
        "--compare",
        action="store_true",
        help="beside each row our time in the newest one before it on the same kind of processor",
    )
    parser.add_argument("--results", type=Path, help="folder of the history and the table")
    options = parser.parse_args(arguments)
    for word in options.what:
        if word not in words:
            parser.error(f"nothing is called {word!r}; there are: {', '.join(words)}")
    options.what = options.what or words
    usual = {"rounds": 3, "repeats": 3, "tries": 3, "wait": 120.0}
    quick = {"rounds": 1, "repeats": 2, "tries": 1, "wait": 0.0}
    for name, value in (quick if options.quick else usual).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    for name in ("threads", "rounds", "repeats", "tries"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, not {getattr(options, name)}")
    if options.results is None:
        options.results = comparison.ROOT / ("out/bench" if options.quick else "bench/results")
    return options


def records(options, settings):
    """Each record as it is measured; an error in its place where that failed."""
    for word in options.what:
        if word == "gemm":
            try:
                yield from measure_gemm(settings, options)
            except MeasurementError as error:
                yield error
            continue
        for row in rows.GROUPS[word](settings):
            if options.only not in row.work:
                continue
            print(f"{row.work} ...", file=sys.stderr, flush=True)
            try:
                yield measure_row(row, options)
            except MeasurementError as error:
                yield MeasurementError(f"{row.work}: {error}")
            finally:
                row.clean_up()


def main():
    options = parsed(sys.argv[1:])
    settings = comparison.Settings(options.threads, options.repeats, options.quick)
    try:
        if rows.NEED_PEERS.intersection(options.what):
            settings.peers_python = peers_python()
        common = {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": commit(),
            "machine": machine.describe(),
            "threads": options.threads,
            "build": build_facts(settings),
            "quick": options.quick,
        }
    except (MeasurementError, OSError, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    failed = 0
    for record in records(options, settings):
        if isinstance(record, MeasurementError):
            failed += 1
            print(f"bench: {record}", file=sys.stderr)
            continue
        for name, why in record.get("not_measured", {}).items():
            failed += 1
            print(f"bench: {record['work']}: without {name}: {why}", file=sys.stderr)
        record = {**common, **record}
        known = results.read(options.results) if options.compare else []
        results.append(options.results, record)
        results.render(options.results)
        print("\n".join(results.lines_of(record)), flush=True)
        if options.compare:
            print(results.compared(record, results.before(record, known)), flush=True)
    print(f"\n{options.results / results.TABLE}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
