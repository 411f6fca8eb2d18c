"""What the PyTorch peers share: options, timing, and the line that each measurement prints."""

import argparse
import contextlib
import json
import os
import resource
import statistics
import time
import warnings
from importlib.metadata import PackageNotFoundError, version

os.environ.setdefault("HF_HUB_OFFLINE", "1")
warnings.filterwarnings("ignore")

import torch  # noqa: E402: after the variable above

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def parser(description):
    made = argparse.ArgumentParser(description=description)
    cores = len(os.sched_getaffinity(0))
    made.add_argument("--threads", type=int, default=int(os.environ.get("OMP_NUM_THREADS", cores)))
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--dtype", choices=DTYPES, default="fp32")
    return made


def start(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)


def autocast(dtype):
    """Matrix products in bf16, weights in fp32; for fp32 nothing."""
    if dtype == "fp32":
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=DTYPES[dtype])


def milliseconds(run, repeats, warm_up=1):
    """The time of each of `repeats` calls, after `warm_up` more."""
    for _ in range(warm_up):
        run()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def libraries():
    found = {}
    for name in ("torch", "transformers", "peft"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def report(name, what, options, seq_len, times, flops=None, parameters=None):
    """One JSON object on one line of stdout."""
    best = min(times)
    line = {
        "name": name,
        "what": what,
        "dtype": options.dtype,
        "threads": options.threads,
        "T": seq_len,
        "ms_min": best,
        "ms_median": statistics.median(times),
        "tokens_per_second": 1e3 * seq_len / best,
        # Of this process alone: the compiler that torch.compile starts does not count.
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "libraries": libraries(),
    }
    if flops is not None:
        line["gflops"] = flops / best / 1e6
    if parameters is not None:
        line["parameters"] = parameters
    print(json.dumps(line), flush=True)
