"""`focus tokenizer encode` on one thread: the time to encode one text and to print its ids.

The time to start and to load the tokenizer, measured with an empty text, is subtracted. Prints one
JSON object on one line.
"""

import argparse
import json
import resource
import statistics
import subprocess
import time
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("tokenizer")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    command = [options.program, "tokenizer", "encode", options.tokenizer]

    def seconds(text):
        begin = time.perf_counter()
        ids = subprocess.run(command, input=text, capture_output=True, check=True).stdout
        return time.perf_counter() - begin, len(ids.split())

    text = options.text.read_bytes()
    start = min(seconds(b"")[0] for _ in range(options.repeats))
    runs = [seconds(text) for _ in range(options.repeats)]
    times = [1e3 * (run[0] - start) for run in runs]
    tokens = runs[0][1]
    print(
        json.dumps(
            {
                "tokens": tokens,
                "ms_min": min(times),
                "ms_median": statistics.median(times),
                "tokens_per_second": 1e3 * tokens / min(times),
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
