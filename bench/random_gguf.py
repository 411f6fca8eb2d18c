#!/usr/bin/env python3
"""Writes a GGUF file of a Llama with random weights in Q4_0 blocks: what a large file costs in memory.

    python3 bench/random_gguf.py OUT.gguf [--layers 32] [--hidden 4096] [--ffn 11008] [--heads 32] [--kv-heads 32]
                               [--vocab 32000] [--context 4096]

The default is the shape of Llama 2 7B, 3.8 GB. There is no tokenizer in it: give --tokenizer bytes. Needs numpy.
"""
import argparse
import struct
from pathlib import Path

import numpy as np

F32, Q4_0 = 0, 2
U32, FLOAT, STRING = 4, 6, 8
ALIGNMENT = 32
BLOCK = np.dtype([("d", "<f2"), ("q", "u1", 16)])  # 32 weights


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def metadata(o: argparse.Namespace) -> list[bytes]:
    entries = {"general.architecture": "llama", "general.name": "random", "general.alignment": ALIGNMENT,
               "llama.block_count": o.layers, "llama.context_length": o.context, "llama.embedding_length": o.hidden,
               "llama.feed_forward_length": o.ffn, "llama.attention.head_count": o.heads,
               "llama.attention.head_count_kv": o.kv_heads, "llama.attention.layer_norm_rms_epsilon": 1e-5,
               "llama.rope.freq_base": 10000.0, "llama.vocab_size": o.vocab, "tokenizer.ggml.model": "none"}
    forms = {int: lambda v: struct.pack("<II", U32, v), float: lambda v: struct.pack("<If", FLOAT, v),
             str: lambda v: struct.pack("<I", STRING) + text(v)}
    return [text(key) + forms[type(value)](value) for key, value in entries.items()]


def tensors(o: argparse.Namespace) -> list[tuple[str, int, int]]:
    """Name, rows (0: a vector), columns."""
    kv = o.hidden // o.heads * o.kv_heads
    found = [("token_embd.weight", o.vocab, o.hidden), ("output_norm.weight", 0, o.hidden),
             ("output.weight", o.vocab, o.hidden)]
    for i in range(o.layers):
        found += [(f"blk.{i}.{name}.weight", rows, columns) for name, rows, columns in [
            ("attn_norm", 0, o.hidden), ("ffn_norm", 0, o.hidden), ("attn_q", o.hidden, o.hidden),
            ("attn_k", kv, o.hidden), ("attn_v", kv, o.hidden), ("attn_output", o.hidden, o.hidden),
            ("ffn_gate", o.ffn, o.hidden), ("ffn_up", o.ffn, o.hidden), ("ffn_down", o.hidden, o.ffn)]]
    return found


class Blocks:
    """Random ones, from a pool of them: as many random bytes as a file has take longer than to write them."""

    def __init__(self, deviation: float):
        self.random = np.random.default_rng(1)
        self.pool = np.zeros(1 << 20, BLOCK)
        self.pool["q"] = self.random.integers(0, 256, (len(self.pool), 16), np.uint8)
        self.pool["d"] = deviation / 4.6 * self.random.uniform(0.5, 1.5, len(self.pool))  # q's deviation is 4.6

    def write(self, count: int, file):
        while count > 0:
            first = int(self.random.integers(len(self.pool) // 2))
            part = self.pool[first:first + count]
            file.write(part.tobytes())
            count -= len(part)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("out", type=Path)
    for name, value in [("layers", 32), ("hidden", 4096), ("ffn", 11008), ("heads", 32), ("kv-heads", 32),
                        ("vocab", 32000), ("context", 4096)]:
        parser.add_argument(f"--{name}", type=int, default=value)
    o = parser.parse_args()
    entries, listed, offset = metadata(o), tensors(o), 0
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(entries)) + b"".join(entries)
    for name, rows, columns in listed:
        dims = [columns, rows] if rows else [columns]
        header += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        header += struct.pack("<IQ", Q4_0 if rows else F32, offset)
        size = rows * columns // 32 * BLOCK.itemsize if rows else 4 * columns
        offset += -(-size // ALIGNMENT) * ALIGNMENT
    blocks = Blocks(0.02)
    with open(o.out, "wb") as file:
        file.write(header)
        for _, rows, columns in listed:
            file.write(bytes(-file.tell() % ALIGNMENT))
            if rows:
                blocks.write(rows * columns // 32, file)
            else:
                file.write(np.ones(columns, "<f4").tobytes())
        file.write(bytes(-file.tell() % ALIGNMENT))
    print(f"{o.out}: {o.out.stat().st_size} bytes, {len(listed)} tensors")


main()
