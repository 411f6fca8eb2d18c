"""Makes tests/golden/focus/*.h5: one Focus attention layer, operation by operation, in float64.

    python tests/golden/focus/make_focus.py [--out FOLDER] [--seed N]

The committed files: torch 2.15.0, numpy 2.4.6, h5py 3.16.0.

Attributes  groups, routing_dim, temperature, sinkhorn_iterations, steepness, window, gate,
            balance, affinity_floor, scale, softcap (0: none), sliding_window (keys that a token
            sees, itself included; 0: all)
Inputs      h [B,T,d], w_g, centroids, q [B,H,T,D], k and v [B,Hkv,T,D], carried [K], d_out
Answers     scores, log_potentials [B,K] (before centring), assignments, out, lse, grad_*,
            carried_after_update_0.1 (all tokens of the batch as one Sinkhorn, centred, rate 0.1)
            and for every k hard_k/{out, lse, membership, pairs}

No near tie decides a top k.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
import focus_reference as ref
from focus_reference import FocusConfig
from golden_files import arguments, exact, f32, fine, write_h5

LEAST_GAP = 2e-4  # between the log-assignments of a token


@dataclass
class Case:
    batch: int
    tokens: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    config: FocusConfig
    softcap: float = 0
    sliding_window: int = 0

    @property
    def options(self) -> dict:
        allowed = ref.causal_mask(self.tokens)
        if self.sliding_window:
            allowed = allowed & ref.local_mask(self.tokens, self.sliding_window - 1)
        return dict(
            scale=1 / math.sqrt(self.head_dim),
            allowed=allowed,
            cfg=self.config,
            softcap=self.softcap or None,
        )


# A tile of attention has 64 queries and 128 keys; Sinkhorn and routing go by 128 and 256 tokens.
CASES = {
    "logit_sequence_mha": Case(
        2, 70, 24, 3, 3, 8, FocusConfig(4, 16, 0.5, 10, 8.0, 12, "logit", "sequence")
    ),
    "logit_sequence_sharp": Case(
        1, 139, 24, 1, 1, 8, FocusConfig(8, 16, 0.1, 10, 20.0, 16, "logit", "sequence")
    ),
    "affinity_sequence_gqa": Case(
        2, 66, 24, 4, 2, 8, FocusConfig(4, 8, 0.5, 10, 8.0, 7, "affinity", "sequence")
    ),
    "affinity_carried_gqa": Case(
        2, 70, 32, 4, 2, 8, FocusConfig(4, 8, 0.3, 10, 8.0, 12, "affinity", "carried")
    ),
    "affinity_carried_tiles": Case(
        1, 271, 16, 2, 1, 4, FocusConfig(3, 8, 0.3, 4, 8.0, 20, "affinity", "carried")
    ),
    "logit_carried_mqa": Case(
        1, 65, 24, 4, 1, 8, FocusConfig(5, 8, 0.3, 10, 6.0, 0, "logit", "carried")
    ),
    "softcap_window": Case(
        1, 96, 24, 2, 1, 8, FocusConfig(4, 8, 0.4, 10, 8.0, 9, "affinity", "sequence"), 5.0, 40
    ),
    "no_balance": Case(1, 64, 24, 2, 2, 8, FocusConfig(4, 8, 0.2, 0, 8.0, 8, "logit", "none")),
    "three_iterations": Case(
        1, 64, 24, 2, 2, 8, FocusConfig(4, 8, 0.1, 3, 8.0, 8, "logit", "sequence")
    ),
}


def routed(case: Case, normal, carried):
    """h, w_g and centroids such that no near tie decides which groups are the top k."""
    config = case.config
    while True:
        h = normal(case.batch, case.tokens, case.hidden)
        w_g = f32(normal(case.hidden, config.routing_dim) / math.sqrt(case.hidden))
        centroids = normal(config.groups, config.routing_dim)
        log_g = torch.log(ref.assignments(h, w_g, centroids, config, carried).clamp_min(1e-300))
        if torch.sort(log_g, -1).values.diff(dim=-1).min() > LEAST_GAP:
            return h, w_g, centroids


def routing_answers(config: FocusConfig, h, w_g, centroids, carried) -> dict:
    scores = ref.scores(h, w_g, centroids)
    logits, rounds = scores / config.temperature, max(config.sinkhorn_iterations, 1)
    return {
        "scores": scores,
        "assignments": ref.assignments(h, w_g, centroids, config, carried),
        "log_potentials": ref.sinkhorn_log_potentials(logits, rounds),
        "carried_after_update_0.1": ref.update_carried(carried, logits, rounds, 0.1),
    }


def hard_answers(case: Case, q, k, v, g) -> dict:
    answers = {}
    for top_k in range(1, case.config.groups + 1):
        out, lse = ref.attention(q, k, v, g=g, top_k=top_k, **case.options)
        pairs = ref.hard_mask(g, top_k, case.config.window) & case.options["allowed"]
        answers[f"hard_{top_k}/out"], answers[f"hard_{top_k}/lse"] = fine(out), fine(lse)
        answers[f"hard_{top_k}/membership"] = ref.membership(g, top_k).to(torch.uint8)
        answers[f"hard_{top_k}/pairs"] = pairs.sum((-1, -2))
    return answers


def make(case: Case, path: Path, generator: torch.Generator):
    def normal(*shape):
        return f32(torch.randn(*shape, generator=generator))

    carried = f32(normal(case.config.groups) * 0.3)
    h, w_g, centroids = routed(case, normal, carried)
    q = normal(case.batch, case.heads, case.tokens, case.head_dim)
    k = normal(case.batch, case.kv_heads, case.tokens, case.head_dim)
    v = normal(case.batch, case.kv_heads, case.tokens, case.head_dim)
    d_out = normal(*q.shape)
    inputs = dict(h=h, w_g=w_g, centroids=centroids, q=q, k=k, v=v)
    leaves = [x.requires_grad_(True) for x in inputs.values()]
    answers = routing_answers(case.config, h, w_g, centroids, carried)
    g = answers["assignments"]
    answers["out"], answers["lse"] = ref.attention(q, k, v, g=g, **case.options)
    gradients = torch.autograd.grad((answers["out"] * d_out).sum(), leaves)
    answers.update({f"grad_{name}": x for name, x in zip(inputs, gradients)})
    inputs.update(carried=carried, d_out=d_out)
    arrays = {name: exact(x) for name, x in inputs.items()}
    arrays.update({name: fine(x) for name, x in answers.items()})
    arrays.update(hard_answers(case, q.detach(), k.detach(), v.detach(), g.detach()))
    write_h5(
        path,
        arrays,
        **vars(case.config),
        scale=case.options["scale"],
        softcap=float(case.softcap),
        sliding_window=case.sliding_window,
    )


def main():
    args = arguments(__doc__.splitlines()[0], seed=20260403)
    generator = torch.Generator().manual_seed(args.seed)
    for name, case in CASES.items():
        make(case, args.out / "focus" / f"{name}.h5", generator)


main()
