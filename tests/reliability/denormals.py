#!/usr/bin/env python3
"""Do numbers below 1e-38 slow a training step down? `tests/reliability/denormals.py PROGRAM`

Makes a model, copies it with every matrix of its layers so small that all of their numbers, and
what they add to the stream, are denormal, and trains the groups of both (retrofit: the matrices
stay as they are). Told is the processor time of a step, the least of several runs in turn: the
difference of a run of many steps and one of few. Ends with 1 where the small numbers cost more
than a tenth.
"""
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile

FEW, MANY, ROUNDS = 2, 10, 5


def seconds(command, environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime


def scale(path, factor):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    size = struct.unpack("<Q", data[:8])[0]
    changed = 0
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if "layers" not in name or len(entry.get("shape", [])) != 2:
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        numbers = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
        data[begin:end] = struct.pack(f"<{len(numbers)}f", *(x * factor for x in numbers))
        changed += len(numbers)
    with open(path, "wb") as file:
        file.write(data)
    return changed


def main():
    program = os.path.realpath(sys.argv[1])
    environment = dict(os.environ, OMP_NUM_THREADS="1", GOMP_SPINCOUNT="10000")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        environment["XDG_CACHE_HOME"] = folder

        def run(*words):
            subprocess.run([program, *words], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        run("corpus", "--out", "text.txt", "--documents", "20")
        keys = "data.train=text.txt data.valid=text.txt data.context=256 data.batch=4 eval_windows=1 log_every=100".split()
        run("train", "method=scratch", "tokenizer=bytes", "model.hidden_size=256", "out=base", "steps=1", *keys)
        run("export", "base/model.h5", "--out", "normal")
        run("export", "base/model.h5", "--out", "small")
        print(scale("small/model.safetensors", 1e-38), "numbers made denormal")
        best = {}
        for turn in range(ROUNDS):
            for base in ("normal", "small"):
                for steps in (FEW, MANY):
                    command = [program, "train", f"base={base}", "tokenizer=bytes", f"steps={steps}", "out=run", "--overwrite", *keys]
                    took = seconds(command, environment)
                    best[base, steps] = min(took, best.get((base, steps), took))
        step = {base: (best[base, MANY] - best[base, FEW]) / (MANY - FEW) for base in ("normal", "small")}
        ratio = step["small"] / step["normal"]
        print(f"a step: {step['normal']:.4f} s of processor time, with denormals {step['small']:.4f} s: {ratio:.3f} times")
        return ratio > 1.1


if __name__ == "__main__":
    sys.exit(main())
