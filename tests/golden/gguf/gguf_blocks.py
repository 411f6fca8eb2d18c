"""Numbers in the block types of GGUF files."""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

ALL_TYPES = [
    Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q2_K,
    Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K, Type.IQ4_NL, Type.IQ4_XS]  # fmt: skip
# Of types that gguf-py does not quantize: where a block holds its float16 scale d, and its float16
# dmin, a multiple of d such that values have a mean near 0.
SCALES = {
    Type.Q2_K: (80, (82, 1.5)),
    Type.Q3_K: (108, None),
    Type.Q4_K: (0, (2, 7.5)),
    Type.Q5_K: (0, (2, 15.5)),
    Type.Q6_K: (208, None),
    Type.IQ4_NL: (0, None),
    Type.IQ4_XS: (0, None),
}


def random_blocks(rng, kind: Type, rows: int, columns: int, deviation: float) -> np.ndarray:
    """Random bytes, with scales that give values of this standard deviation."""
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows * columns // weights, size), dtype=np.uint8)
    at, low = SCALES[kind]
    spread = rng.uniform(0.5, 1.5, len(blocks)) * rng.choice([1, 1, 1, -1], len(blocks))

    def put(place: int, values: np.ndarray):
        blocks[:, place : place + 2] = values.astype(np.float16).view(np.uint8).reshape(-1, 2)

    def scale_by(unit: float) -> np.ndarray:
        put(at, unit * spread)
        if low:
            put(low[0], unit * low[1] * np.abs(spread))
        return blocks.reshape(rows, -1)

    return scale_by(deviation / gguf.quants.dequantize(scale_by(1.0), kind).std())


def encode(rng, kind: Type, values: np.ndarray) -> np.ndarray:
    """The values in blocks, or other random values where gguf-py has no way to quantize them."""
    if kind in SCALES:
        return random_blocks(rng, kind, *values.shape, float(values.std()))
    return gguf.quants.quantize(values.astype(np.float32), kind)


def decode(data: np.ndarray, kind: Type) -> np.ndarray:
    return np.ascontiguousarray(gguf.quants.dequantize(data, kind), dtype=np.float32)
