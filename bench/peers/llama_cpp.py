"""llama.cpp (PyPI's xllamacpp) on a GGUF file: `--what prompt` times what stands in a text file,
`--what decode` the tokens generated behind it, with llama.cpp's own clock and defaults (its cache is
float16). The times are those of a thousand tokens.
"""

import argparse
import json
import os
import resource
import statistics
import urllib.request
from importlib.metadata import version

import xllamacpp


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--what", choices=("prompt", "decode"), required=True)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.n_ctx, params.n_parallel, params.verbosity = 8192, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    server = xllamacpp.Server(params)
    with open(options.text, encoding="utf-8") as file:
        prompt = file.read()
    request = {
        "prompt": prompt,
        "n_predict": options.new_tokens if options.what == "decode" else 1,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,
    }

    def run():
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/json"}
        answer = urllib.request.urlopen(
            urllib.request.Request(server.listening_address + "/completion", body, headers)
        )
        timings = json.load(answer)["timings"]
        key = "predicted" if options.what == "decode" else "prompt"
        return 1e3 * timings[f"{key}_per_token_ms"]

    run()
    times = [run() for _ in range(options.repeats)]
    print(
        json.dumps(
            {
                "ms_min": min(times),
                "ms_median": statistics.median(times),
                "tokens_per_second": 1e6 / min(times),
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "libraries": {"xllamacpp": version("xllamacpp")},
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
