"""The terms of a comparison: a row is one piece of work, done by us and by its peers, each a side."""

import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
PEERS = ROOT / "bench" / "peers"


@dataclass
class Settings:
    """How often and on how many threads."""

    threads: int
    repeats: int
    quick: bool
    peers_python: str = ""


@dataclass
class Side:
    """One way to do a row's work. `read` makes figures of the finished process (machine.Run): at
    least ms_min and ms_median; `environment` is set for it."""

    name: str
    command: list[str]
    read: Callable
    environment: dict = field(default_factory=dict)


@dataclass
class Row:
    """sides[0] is what is being judged. `ideal_from_pairs`: the peer attends all pairs and we a
    part of them, so that the ratio can at best be that of the pairs. `prepare` makes what the sides
    read, `clean_up` removes it."""

    group: str
    work: str
    sides: list[Side]
    ideal_from_pairs: bool = False
    prepare: Callable = lambda: None  # called before the first side
    clean_up: Callable = lambda: None  # called after the last


def our_environment(settings):
    # The program shortens libgomp's spin itself; the benchmarks are told.
    return {"OMP_NUM_THREADS": str(settings.threads), "GOMP_SPINCOUNT": "10000"}


def read_google_benchmark(run):
    """Figures of the one case that was run, over its repetitions."""
    document = json.loads(run.stdout)
    cases = [c for c in document["benchmarks"] if c.get("run_type") == "iteration"]
    if not cases:
        raise ValueError("focus_bench ran no case of that name")
    assert all(c["time_unit"] == "ms" for c in cases)
    times = [c["real_time"] for c in cases]
    figures = {
        "ms_min": min(times),
        "ms_median": statistics.median(times),
        "peak_rss_mib": run.peak_rss_mib,
    }
    if "GFLOP/s" in cases[0]:
        figures["gflops"] = max(c["GFLOP/s"] for c in cases)
    if "pairs" in cases[0]:
        figures["pairs"] = cases[0]["pairs"]
    context = document["context"]
    figures["build"] = {key: context[key] for key in ("isa", "compiler", "version")}
    return figures


def kernel(name, case, settings):
    """A case of focus_bench."""
    return Side(
        name,
        [
            str(BUILD / "focus_bench"),
            f"--benchmark_filter=^{case}/real_time$",
            f"--benchmark_repetitions={settings.repeats}",
            f"--benchmark_min_time={0.02 if settings.quick else 0.5}",
            "--benchmark_format=json",
        ],
        read_google_benchmark,
        our_environment(settings),
    )


def program_step(name, settings, overrides, shape="gpt2"):
    """A step of the program itself, `focus speed --step`: the one place that knows its options and
    its JSON."""
    file = Path(tempfile.gettempdir()) / f"focus-step-{os.getpid()}.json"

    def read(_run):
        document = json.loads(file.read_text(encoding="utf-8"))
        file.unlink()
        return {
            "ms_min": 1e3 * document["seconds_min"],
            "ms_median": 1e3 * document["seconds_median"],
            "tokens_per_second": document["tokens_per_second"],
            "gflops": document["gflops"],
            "peak_rss_mib": document["peak_resident_bytes"] / 2**20,
            "parameters": document["parameters"],
        }

    command = [str(BUILD / "focus"), "speed", "--step", "--shape", shape, "--json", str(file)]
    command += ["--repeats", str(settings.repeats), *overrides]
    return Side(name, command, read, our_environment(settings))


def torch_peer(name, settings, script, *arguments):
    """A script of bench/peers that prints one line."""
    command = [settings.peers_python or sys.executable, str(PEERS / script), *arguments]
    command += ["--threads", str(settings.threads), "--repeats", str(settings.repeats)]
    # One process compiles, so that its CPU time is counted as the peer's.
    environment = {"OMP_NUM_THREADS": str(settings.threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return Side(name, command, lambda run: json.loads(run.stdout), environment)
