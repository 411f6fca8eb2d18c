#!/usr/bin/env python3
"""Runs a command of focus and prints when it began to train, when its first step was done, and what
it held in memory at most: of its own, and of files that are mapped.

    python3 bench/start.py build/release/focus train base=DIR ... steps=2 log_every=1
"""

import json
import subprocess
import sys
import threading
import time


def watch(pid, peak, done):
    """The largest values of /proc/PID/status, read every 10 ms; in MiB."""
    while not done.is_set():
        try:
            with open(f"/proc/{pid}/status") as status:
                for line in status:
                    name, _, value = line.partition(":")
                    if name in ("VmHWM", "RssAnon", "RssFile"):
                        peak[name] = max(peak.get(name, 0), int(value.split()[0]) // 1024)
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)


def main():
    began, times, peak, done = time.monotonic(), {}, {}, threading.Event()
    process = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE, text=True)
    watcher = threading.Thread(target=watch, args=(process.pid, peak, done))
    watcher.start()
    for line in process.stderr:
        for name, mark in (("training_begins", "training on "), ("first_step_done", "step 1/")):
            if mark in line:
                times.setdefault(name, round(time.monotonic() - began, 3))
        if line.startswith("focus "):
            print(line, file=sys.stderr, end="")
    process.wait()
    done.set()
    watcher.join()
    print(json.dumps({"status": process.returncode, "seconds": times, "peak_MiB": peak}))


if __name__ == "__main__":
    main()
