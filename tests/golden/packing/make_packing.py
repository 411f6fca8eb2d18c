"""Makes tests/golden/packing/: rows of several documents, of which some tokens are learned.

    python tests/golden/packing/make_packing.py [--out FOLDER] [--seed N]

The committed files: torch 2.15.0, transformers 5.24.0, peft 0.21.2, h5py 3.16.0.
It reads FOLDER/arch and FOLDER/lora, which arch/make_arch.py and lora/make_lora.py make. MODEL.h5 holds documents of random ids one
after the other (ids, offsets, counts: 1 where the loss is of it), the windows that a packing of
theirs must be (windows: of each document its window), their losses (window_losses), and steps of
PEFT's LoRA of lora/MODEL over these windows in their order, a part of a step each: losses,
grad_norms, learning_rates, final/NAME. A window is one row to transformers, with position_ids that
begin anew in each document, a mask that lets none see another, and labels of -100 where the loss is
not; the loss of a step is the mean over the labels of all its parts. MODEL.h5 of gpt2 has learned
positions, that of gemma2 layers with a sliding window.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from golden_files import arguments, coarse, write_h5
from tiny_models import VOCABULARY, allowed_pairs, load_model

DOCUMENTS, CONTEXT, PARTS, STEPS = 40, 48, 2, 6
LR = 2e-2
MODELS = ("gpt2", "llama_gqa", "gemma2")


def random_documents(generator):
    """Each of some length; the loss is of its second part, never of its first token."""
    documents = []
    for _ in range(DOCUMENTS):
        size = int(torch.randint(3, CONTEXT + 1, (1,), generator=generator))
        prompt = int(torch.randint(1, size, (1,), generator=generator))
        ids = torch.randint(0, VOCABULARY, (size,), generator=generator)
        documents.append((ids, torch.arange(size) >= prompt))
    return documents


def best_fit(sizes):
    """Best fit, the longest first: [window of each document], windows by their first document."""
    windows = []  # what is left, documents
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        fitting = [w for w in range(len(windows)) if windows[w][0] >= sizes[i]]
        if fitting:
            best = min(fitting, key=lambda w: (windows[w][0], w))
        else:
            best = len(windows)
            windows.append([CONTEXT, []])
        windows[best][0] -= sizes[i]
        windows[best][1].append(i)
    return sorted(sorted(window) for _, window in windows)


def packed_row(documents, window):
    """ids, position_ids, labels of one row, and which pairs are seen."""
    ids = torch.cat([documents[i][0] for i in window])
    positions = torch.cat([torch.arange(len(documents[i][0])) for i in window])
    counts = torch.cat([documents[i][1] for i in window])
    labels = torch.where(counts, ids, -100)
    labels[positions == 0] = -100
    owner = torch.cat([torch.full((len(documents[i][0]),), i) for i in window])
    return ids, positions, labels, owner[:, None] == owner[None, :]


def masks(model, same):
    """By layer type, as transformers' models take them: 0 where a pair is seen."""
    tokens = same.shape[0]
    types = getattr(model.config, "layer_types", None) or ["full_attention"]
    base = model.get_base_model()
    of_type = {}
    for layer, kind in enumerate(types):
        seen = allowed_pairs(base, layer, tokens) & same
        of_type[kind] = torch.zeros(1, 1, tokens, tokens).masked_fill(~seen, -torch.inf)
    return of_type if len(of_type) > 1 else next(iter(of_type.values()))


def summed_loss(model, row):
    ids, positions, labels, same = row
    out = model(input_ids=ids[None], position_ids=positions[None], attention_mask=masks(model, same))
    logits = out.logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, labels[1:], ignore_index=-100, reduction="sum")


def load_adapted(out, name):
    model = PeftModel.from_pretrained(load_model(out / "arch" / name), out / "lora" / name,
                                      is_trainable=True)
    return model.double().eval()


def train(model, parameters, rows):
    optimizer = torch.optim.AdamW(parameters, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, norms = [], []
    for step in range(STEPS):
        parts = [rows[(step * PARTS + part) % len(rows)] for part in range(PARTS)]
        labels = sum(int((row[2][1:] != -100).sum()) for row in parts)
        optimizer.zero_grad()
        loss = sum(summed_loss(model, row) for row in parts) / labels
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, 1.0)))
        optimizer.step()
        losses.append(float(loss.detach()))
    return {"losses": np.array(losses), "grad_norms": np.array(norms),
            "learning_rates": np.full(STEPS, LR)}


def main():
    args = arguments(__doc__.splitlines()[0], seed=20261126)
    for name in MODELS:
        generator = torch.Generator().manual_seed(args.seed)
        documents = random_documents(generator)
        windows = best_fit([len(ids) for ids, _ in documents])
        window_of = np.zeros(DOCUMENTS, np.int32)
        for number, window in enumerate(windows):
            window_of[window] = number
        model = load_adapted(args.out, name)
        trained = {key.replace(".default", ""): p for key, p in model.named_parameters()
                   if "lora_" in key}
        arrays = {
            "ids": torch.cat([ids for ids, _ in documents]).to(torch.int32),
            "offsets": np.cumsum([0] + [len(ids) for ids, _ in documents]).astype(np.int32),
            "counts": torch.cat([counts for _, counts in documents]).to(torch.int32),
            "windows": window_of,
        }
        rows = [packed_row(documents, window) for window in windows]
        with torch.no_grad():
            arrays["window_losses"] = coarse(torch.stack(
                [summed_loss(model, row) / (row[2][1:] != -100).sum() for row in rows]))
        arrays.update(train(model, list(trained.values()), rows))
        arrays.update({f"final/{key}": coarse(p) for key, p in trained.items()})
        write_h5(args.out / "packing" / f"{name}.h5", arrays, hyper_lr=LR, hyper_beta1=0.9,
                 hyper_beta2=0.95, hyper_eps=1e-8, hyper_weight_decay=0.1, hyper_clip_norm=1.0,
                 hyper_warmup=0, hyper_final_lr_ratio=1.0, context=CONTEXT, parts=PARTS)


main()
