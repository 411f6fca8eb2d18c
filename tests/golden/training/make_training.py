"""Makes tests/golden/training/*.h5: runs of PyTorch's AdamW on transformers' models.

    python tests/golden/training/make_training.py [--out FOLDER] [--seed N]

The committed files: torch 2.15.0, transformers 5.24.0, h5py 3.16.0.
It reads FOLDER/arch, which arch/make_arch.py makes. MODEL_retrofit.h5 trains Focus on a frozen
model, MODEL_full.h5 all weights. Both hold tokens [steps,B,T], losses, grad_norms (before
clipping), learning_rates, final/ and attributes hyper_*; a retrofit also has initial/ and Focus's
settings.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from focus_reference import FocusConfig
from golden_files import arguments, coarse, exact, write_h5
from tiny_models import attach_focus, freeze, load_model, random_focus
from training_curve import MODELS, SETTINGS, curve_file, random_batches, train

FOCUS = FocusConfig(4, 8, 0.5, 10, 8.0, 6, "logit", "sequence")


def make_retrofit(name: str, out: Path, batches: list, generator: torch.Generator):
    model = load_model(out / "arch" / name)
    freeze(model)
    parameters = random_focus(model, FOCUS, generator)
    attach_focus(model, parameters, FOCUS)
    trained = {
        f"layers/{i}/{key}": p[key]
        for i, p in enumerate(parameters)
        for key in ("w_g", "centroids")
    }
    initial = {f"initial/{key}": exact(x).copy() for key, x in trained.items()}
    curve = train(model, list(trained.values()), batches, SETTINGS)
    arrays, attributes = curve_file(batches, curve, SETTINGS)
    final = {f"final/{key}": coarse(x) for key, x in trained.items()}
    path = out / "training" / f"{name}_retrofit.h5"
    write_h5(path, {**arrays, **initial, **final}, **vars(FOCUS), **attributes)


def make_full(name: str, out: Path, batches: list):
    model = load_model(out / "arch" / name)
    settings = dict(SETTINGS, lr=2e-3)
    curve = train(model, list(model.parameters()), batches, settings)
    arrays, attributes = curve_file(batches, curve, settings)
    final = {f"final/{key}": coarse(x) for key, x in model.named_parameters()}
    write_h5(out / "training" / f"{name}_full.h5", {**arrays, **final}, **attributes)


def main():
    args = arguments(__doc__.splitlines()[0], seed=20260403)
    for name in MODELS:
        generator = torch.Generator().manual_seed(args.seed + 777)
        batches = random_batches(generator)
        make_retrofit(name, args.out, batches, generator)
        make_full(name, args.out, batches)


main()
