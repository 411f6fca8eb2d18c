"""Makes tests/golden/arch/FAMILY/: tiny random models and what transformers computes with them.

    python tests/golden/arch/make_arch.py [--out FOLDER] [--seed N] [NAME...]

The committed files: torch 2.15.0, transformers 5.24.0, safetensors 0.8.0, h5py 3.16.0.
Each folder is a Hugging Face one (config.json, model.safetensors) with these files beside it, of
LATER_FAMILIES one with Focus, of one sequence:

dense.h5               input_ids, logits, loss (mean over shifted tokens), grad/PARAMETER, greedy
                       (24 prompt tokens, then 24 generated; not of llama_dynamic, where a cache of
                       transformers holds keys that were rotated for shorter texts)
focus_GATE_BALANCE.h5  Focus's settings as attributes, input_ids, layers/i/{w_g, centroids, carried,
                       grad_w_g, grad_centroids}, logits, loss, hard_k/{logits, loss} (the gate
                       dropped on the attended pairs)

Transformers itself computes norms and softmax in float32.
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from focus_reference import FocusConfig
from golden_files import arguments, coarse, exact, write_h5
from tiny_models import (
    FAMILIES,
    LATER_FAMILIES,
    VOCABULARY,
    attach_focus,
    attention_modules,
    freeze,
    has_dynamic_rope,
    make_model,
    random_focus,
    smallest_gap,
)

BATCH, TOKENS, PROMPT = 2, 48, 24
FOCUS_TOKENS = 24
LEAST_GAP = 2e-4  # of log-assignments
LEAST_LOGIT_GAP = 1e-3  # between a greedy token and the next best
# Gate and balance, and the top k of hard attention beside the soft one.
FOCUS_CASES = [
    ("logit", "sequence", (1,)),
    ("affinity", "sequence", (2,)),
    ("affinity", "carried", (3,)),
]


def random_ids(generator: torch.Generator) -> torch.Tensor:
    """Without 0, the end of a text."""
    return torch.randint(1, VOCABULARY, (BATCH, TOKENS), generator=generator)


def greedy_tokens(model, ids: torch.Tensor) -> torch.Tensor:
    """One prompt and what follows; None where a near tie decides a token."""
    with torch.no_grad():
        for _ in range(PROMPT):
            best = model(ids).logits[0, -1].topk(2)
            if best.values[0] - best.values[1] < LEAST_LOGIT_GAP:
                return None
            ids = torch.cat([ids, best.indices[:1, None]], 1)
    return ids


def check_generate(model, ids: torch.Tensor, greedy: torch.Tensor):
    generated = model.generate(
        ids[:1, :PROMPT],
        attention_mask=torch.ones_like(ids[:1, :PROMPT]),
        do_sample=False,
        max_new_tokens=PROMPT,
        eos_token_id=None,
        pad_token_id=0,
    )
    assert torch.equal(generated, greedy)


def make_dense(model, generator: torch.Generator, path: Path) -> torch.Tensor:
    """Returns the ids."""
    greedy = None
    while greedy is None:
        ids = random_ids(generator)
        greedy = greedy_tokens(model, ids[:1, :PROMPT])
    arrays = {"input_ids": ids.to(torch.int32)}
    if not has_dynamic_rope(model):
        check_generate(model, ids, greedy)
        arrays["greedy"] = greedy.to(torch.int32)
    out = model(ids, labels=ids)
    names = [name for name, _ in model.named_parameters()]
    gradients = torch.autograd.grad(out.loss, list(model.parameters()))
    arrays.update(logits=coarse(out.logits), loss=coarse(out.loss))
    arrays.update({f"grad/{name}": coarse(x) for name, x in zip(names, gradients)})
    write_h5(path, arrays)
    return ids


def check_no_effect(model, ids: torch.Tensor, generator: torch.Generator):
    """Focus that leaves out no pair must be the dense model."""
    dense = model(ids).logits
    for config, top_k in (
        (FocusConfig(4, 8, 0.5, window=10**6), None),
        (FocusConfig(4, 8, window=4), 4),
    ):
        hooks = attach_focus(model, random_focus(model, config, generator), config, top_k)
        worst = float((model(ids).logits - dense).abs().max().detach())
        for hook in hooks:
            hook.remove()
        model.set_attn_implementation("eager")
        assert worst < 2e-5, f"Focus that leaves out nothing changes logits by {worst}"


def run_focus(model, ids, parameters, config, top_k):
    """The model's output, and the smallest gap between groups."""
    hooks = attach_focus(model, parameters, config, top_k)
    out = model(ids, labels=ids)
    for hook in hooks:
        hook.remove()
    return out, smallest_gap(model)


def make_focus(model, ids, gate: str, balance: str, top_ks, generator, path: Path):
    config = FocusConfig(4, 8, 0.5, 10, 8.0, 6, gate, balance)
    gap = 0
    while gap < LEAST_GAP:  # no near tie decides which groups are the top k
        parameters = random_focus(model, config, generator)
        runs = {k: run_focus(model, ids, parameters, config, k) for k in (None, *top_ks)}
        gap = min(run[1] for run in runs.values())
    out = runs.pop(None)[0]
    leaves = [p[key] for p in parameters for key in ("w_g", "centroids")]
    gradients = iter(torch.autograd.grad(out.loss, leaves))
    arrays = {"input_ids": ids.to(torch.int32)}
    arrays.update(logits=coarse(out.logits), loss=coarse(out.loss))
    for layer, p in enumerate(parameters):
        arrays.update({f"layers/{layer}/{key}": exact(x) for key, x in p.items()})
        for key in ("w_g", "centroids"):
            arrays[f"layers/{layer}/grad_{key}"] = coarse(next(gradients))
    for k, (hard, _) in runs.items():
        arrays[f"hard_{k}/logits"] = coarse(hard.logits)
        arrays[f"hard_{k}/loss"] = coarse(hard.loss)
    write_h5(path, arrays, **vars(config))


def main():
    args = arguments(__doc__.splitlines()[0], seed=20260403, names=True)
    for index, (name, (kind, settings)) in enumerate((FAMILIES | LATER_FAMILIES).items()):
        if args.names and name not in args.names:
            continue
        batch = BATCH if name in FAMILIES else 1
        cases = FOCUS_CASES if name in FAMILIES else [FOCUS_CASES[index % len(FOCUS_CASES)]]
        folder = args.out / "arch" / name
        model = make_model(kind(**settings), args.seed + index, folder)
        assert len(attention_modules(model)) == model.config.num_hidden_layers
        generator = torch.Generator().manual_seed(args.seed + 200 + index)
        ids = make_dense(model, generator, folder / "dense.h5")
        freeze(model)
        check_no_effect(model, ids, generator)
        for gate, balance, top_ks in cases:
            path = folder / f"focus_{gate}_{balance}.h5"
            make_focus(model, ids[:batch, :FOCUS_TOKENS], gate, balance, top_ks, generator, path)


main()
