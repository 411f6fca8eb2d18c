"""Training with PyTorch's AdamW."""

import math

import numpy as np
import torch

from tiny_models import VOCABULARY

STEPS, BATCH, TOKENS = 24, 2, 48
SETTINGS = dict(
    lr=2e-2,
    beta1=0.9,
    beta2=0.95,
    eps=1e-8,
    weight_decay=0.1,
    clip_norm=1.0,
    warmup=5,
    final_lr_ratio=0.1,
)
MODELS = ("gpt2", "llama_gqa", "gemma2")


def random_batches(generator: torch.Generator) -> list:
    """Each sequence's second half repeats its first: something that can be learned."""
    batches = []
    for _ in range(STEPS):
        ids = torch.randint(0, VOCABULARY, (BATCH, TOKENS), generator=generator)
        ids[:, TOKENS // 2 :] = ids[:, : TOKENS // 2]
        batches.append(ids)
    return batches


def learning_rate(step: int, settings: dict) -> float:
    """Linear warm-up, then a cosine down to final_lr_ratio of the peak at the last step."""
    peak, warmup, final = settings["lr"], settings["warmup"], settings["final_lr_ratio"]
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, STEPS - 1 - warmup)
    return peak * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress)))


def train(model, parameters: list, batches: list, settings: dict) -> dict:
    """Weight decay on all parameters. Norms are those before clipping."""
    optimizer = torch.optim.AdamW(
        parameters,
        lr=1.0,
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["eps"],
        weight_decay=settings["weight_decay"],
    )
    losses, norms, rates = [], [], []
    for step, ids in enumerate(batches):
        rates.append(learning_rate(step, settings))
        optimizer.param_groups[0]["lr"] = rates[-1]
        optimizer.zero_grad()
        loss = model(ids, labels=ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters, settings["clip_norm"])
        optimizer.step()
        losses.append(float(loss.detach()))
        norms.append(float(norm))
    return dict(losses=np.array(losses), grad_norms=np.array(norms), learning_rates=np.array(rates))


def curve_file(batches: list, curve: dict, settings: dict) -> tuple[dict, dict]:
    """What each golden file of a run holds: arrays, attributes."""
    arrays = {"tokens": torch.stack(batches).to(torch.int32), **curve}
    return arrays, {f"hyper_{name}": value for name, value in settings.items()}
