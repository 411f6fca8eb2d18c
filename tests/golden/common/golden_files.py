"""What the scripts that make golden files share: arguments, rounding, HDF5 files.

Weights and inputs are float32 numbers, so that a program in float32 starts from the same numbers.
Answers are computed in float64 and rounded to a step of 2^-bits of the largest in their array: an
eighth of a test's tolerance, or less. Finer digits need not be stored.
"""

import argparse
from pathlib import Path

import h5py
import numpy as np
import torch

GOLDEN = Path(__file__).resolve().parents[1]
FINE_BITS = 33  # to 1.2e-10 of the largest, where the tolerance is 1e-9 in double precision
COARSE_BITS = 18  # to 4e-6, where it is 1e-4: whole models


def arguments(description: str, seed: int, names: bool = False) -> argparse.Namespace:
    """--out: the folder that gets arch/, focus/, ...; --seed: another one makes other cases; names:
    the cases that are made, all unless some are named."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=GOLDEN, help="default: tests/golden")
    parser.add_argument("--seed", type=int, default=seed, help=f"default: {seed}")
    if names:
        parser.add_argument("names", nargs="*", help="cases to make; default: all")
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    return parser.parse_args()


def f32(x: torch.Tensor) -> torch.Tensor:
    """The nearest float32 numbers, as float64."""
    return x.float().double()


def rounded(x, bits: int) -> np.ndarray:
    """Multiples of the largest magnitude's power of two times 2^-bits."""
    x = np.asarray(x.detach() if isinstance(x, torch.Tensor) else x, dtype=np.float64)
    largest = np.abs(x).max(initial=0)
    if largest == 0:
        return x
    step = 2.0 ** (np.ceil(np.log2(largest)) - bits)
    return np.round(x / step) * step


def fine(x) -> np.ndarray:
    """An answer that is compared in double precision."""
    return rounded(x, FINE_BITS)


def coarse(x) -> np.ndarray:
    """An answer that is compared in single precision; a single number is kept whole."""
    x = np.asarray(x.detach() if isinstance(x, torch.Tensor) else x, dtype=np.float64)
    return rounded(x, COARSE_BITS).astype(np.float32) if x.ndim else x


def exact(x) -> np.ndarray:
    """An input: float32 numbers, and the same bits when they are read as float64."""
    x = np.asarray(x.detach() if isinstance(x, torch.Tensor) else x, dtype=np.float64)
    narrow = x.astype(np.float32)
    assert np.array_equal(narrow.astype(np.float64), x), "an input is no float32 number"
    return narrow


def write_h5(path: Path, arrays: dict, **attributes):
    """Arrays as they are, packed where that makes them smaller."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        for name, value in arrays.items():
            value = np.asarray(value)
            packed = value.nbytes > 1024
            options = dict(compression="gzip", compression_opts=9, shuffle=True) if packed else {}
            file.create_dataset(name, data=value, track_times=False, **options)
        file.attrs.update(attributes)
