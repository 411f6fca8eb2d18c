"""Makes blocks.safetensors: numbers, and what gguf-py's quantize() makes of them.

    python tests/golden/blocks/make_blocks.py

The committed file: gguf 0.19.0, numpy 2.4.6, safetensors 0.8.0.

`numbers` [rows, 128] are float32; a tensor named by a type, "q8_0", holds the bytes [rows, bytes of a
row] of that type.
"""
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]


def main():
    rng = np.random.default_rng(35)
    rows = [rng.normal(0, deviation, 128) for deviation in (1, 0.02, 30, 1e-3, 1e-6, 2000)]
    rows.append(rng.uniform(0, 1, 128))
    rows.append(rng.uniform(-5, -4, 128))
    rows.append(np.zeros(128))
    rows.append(np.full(128, -0.0))
    rows.append(np.full(128, 3.25))
    rows.append(rng.integers(-127, 128, 128) * 0.5)  # ties of q8_0
    rows.append((rng.integers(-16, 17, 128) + 0.5) / 8)  # ties of the others
    sparse = np.zeros(128)
    sparse[[5, 40, 64, 127]] = [2, -3, 1e-5, 0.7]
    rows.append(sparse)
    signs = np.tile([1.5, -1.5], 64)  # which of two farthest numbers gives the sign
    rows.append(signs)
    rows.append(-signs)
    numbers = np.array(rows, dtype=np.float32)
    tensors = {"numbers": numbers}
    for name in TYPES:
        tensors[name.lower()] = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[name])
    save_file(tensors, Path(__file__).with_name("blocks.safetensors"))


main()
