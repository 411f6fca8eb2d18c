"""llama.cpp on a GGUF file: `--what prompt` times what stands in a text file, `--what decode` the
tokens generated behind it, with llama.cpp's defaults (its cache is float16). The times are those of
a thousand tokens. `--build wheel` is PyPI's xllamacpp, which is built for AVX2 on every machine;
`--build native` is llama-cpp-python, built by pip for this CPU (install.sh).
"""

import argparse
import ctypes
import json
import os
import resource
import statistics
import time
import urllib.request
from importlib.metadata import version

import numpy


def serve(model, threads, slots=1):
    """llama.cpp's server, with 8,192 positions a slot."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx, params.n_parallel, params.verbosity = slots * 8192, slots, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    return xllamacpp.Server(params)


def wheel(options, prompt):
    """Milliseconds of a thousand tokens, by the clock of llama.cpp's server."""
    server = serve(options.model, options.threads)
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

    return run, "xllamacpp"


def native(options, prompt):
    """The same of the library's own functions."""
    import llama_cpp

    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    model = llama_cpp.llama_model_load_from_file(
        options.model.encode(), llama_cpp.llama_model_default_params()
    )
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 8192, options.threads, options.threads
    context = llama_cpp.llama_init_from_model(model, params)
    vocabulary = llama_cpp.llama_model_get_vocab(model)
    tokens = (llama_cpp.llama_token * 8192)()
    text = prompt.encode()
    count = llama_cpp.llama_tokenize(
        vocabulary, text, len(text), tokens, len(tokens), True, True
    )
    size = llama_cpp.llama_vocab_n_tokens(vocabulary)

    def decode(ids):
        """Seconds of a pass over `ids`."""
        array = (llama_cpp.llama_token * len(ids))(*ids)
        begin = time.perf_counter()
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(ids))) != 0:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_synchronize(context)
        return time.perf_counter() - begin

    def likeliest():
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        return int(numpy.ctypeslib.as_array(logits, shape=(size,)).argmax())

    def run():
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        batch = params.n_batch
        seconds = sum(decode(tokens[i : min(i + batch, count)]) for i in range(0, count, batch))
        if options.what == "prompt":
            return 1e6 * seconds / count
        return 1e6 * sum(decode([likeliest()]) for _ in range(options.new_tokens)) / options.new_tokens

    run.keeps = quiet  # as long as the library may call it
    return run, "llama_cpp_python"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--what", choices=("prompt", "decode"), required=True)
    parser.add_argument("--build", choices=("wheel", "native"), default="wheel")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with open(options.text, encoding="utf-8") as file:
        prompt = file.read()
    run, library = (native if options.build == "native" else wheel)(options, prompt)
    run()
    times = [run() for _ in range(options.repeats)]
    print(
        json.dumps(
            {
                "ms_min": min(times),
                "ms_median": statistics.median(times),
                "tokens_per_second": 1e6 / min(times),
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "libraries": {library: version(library)},
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
