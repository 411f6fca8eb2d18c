"""Makes tests/golden/summary/*.h5: attention with summary tokens, in float64.

    python tests/golden/summary/make_summary.py [--out FOLDER] [--seed N]

The committed files: torch 2.15.0, numpy 2.4.6, h5py 3.16.0.

Attributes  groups, window, block, sinks, scale, softcap, sliding_window, width (absent: 0), tau,
            routing (keys: classes from the keys; own: from own_scores [B,T,K], each query reads its
            own group), per_query_head (absent: 0; 1: each query head selects for itself)
Inputs      q [B,H,T,D], k and v [B,Hkv,T,D], centroids [Hkv,K,D], bias [Hkv,K], beta [Hkv,K],
            d_out; selected_by_head [H]: m of each query head, where they differ; summary_width [H]:
            the share of the width in a summary token's own score (absent: 0)
Answers     z, classes, and for each m_N (groups read exactly) out, lse, chosen, pairs (tokens and
            summary tokens, mean over heads), grad_* (grad_k with the routing's input constant;
            grad_k_through_classes without)

No near tie decides a class or a choice.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
import summary_reference as ref
from golden_files import arguments, exact, f32, fine, write_h5

TAU = 0.7
LEAST_CLASS_GAP, LEAST_MASS_GAP = 1e-3, 2e-4


@dataclass
class Case:
    batch: int
    heads: int
    kv_heads: int
    tokens: int
    head_dim: int
    groups: int
    read: tuple  # values of m
    window: int
    block: int
    sinks: int
    softcap: float = 0
    sliding_window: int = 0
    own: bool = False
    width: float = 0.0
    per_query_head: bool = False
    by_head: tuple = ()
    summary_width: tuple = ()

    def config(self, top_groups: int) -> ref.SummaryConfig:
        return ref.SummaryConfig(
            self.groups,
            top_groups,
            self.window,
            self.block,
            self.sinks,
            self.head_dim**-0.5,
            self.softcap,
            self.sliding_window,
            TAU,
            self.width,
            self.per_query_head,
            self.by_head,
            self.summary_width,
        )


# Tiles have 64 queries and 128 keys; group sums are taken in runs of 256 keys.
CASES = {
    "mha_each_query": Case(2, 3, 3, 61, 8, 4, (0, 1, 4), 5, 1, 1),
    "gqa_blocks": Case(2, 4, 2, 75, 8, 6, (0, 2, 6), 8, 8, 1),
    "mqa_no_sinks": Case(1, 4, 1, 70, 8, 5, (0, 2), 3, 16, 0),
    "softcap_sliding": Case(1, 2, 2, 80, 8, 4, (0, 1, 4), 6, 4, 2, 5.0, 41),
    "window_beyond_end": Case(1, 2, 1, 24, 8, 4, (1,), 64, 8, 1),
    "own_group": Case(2, 4, 2, 77, 8, 4, (1,), 7, 8, 0, own=True),
    "long_runs": Case(1, 2, 1, 530, 4, 5, (0, 1), 20, 16, 1),
    "long_sliding": Case(1, 1, 1, 600, 4, 4, (0, 1), 6, 5, 3, 0.0, 300),
    "wide_gqa": Case(2, 4, 2, 75, 8, 6, (1, 2), 8, 8, 1, width=1.0),
    "wide_softcap_sliding": Case(1, 2, 2, 80, 8, 4, (1,), 6, 4, 2, 5.0, 41, width=0.5),
    "query_heads_gqa": Case(2, 4, 2, 75, 8, 6, (1, 2), 8, 8, 1, width=1.0, per_query_head=True),
    "budgets_mqa_sliding": Case(
        1, 3, 1, 80, 8, 5, (2,), 6, 4, 2, 5.0, 41, width=1.0, per_query_head=True, by_head=(1, 3, 2)
    ),
    "summary_width_gqa": Case(
        2, 4, 2, 75, 8, 6, (0, 2), 8, 8, 1, 4.0, width=1.0, per_query_head=True,
        summary_width=(0.5, 1, 0, 0.75)
    ),
}


def draw(case: Case, generator: torch.Generator) -> tuple[dict, torch.Tensor]:
    """The inputs that gradients are taken of, by name, and d_out."""

    def normal(*shape, scale=1.0):
        return f32(torch.randn(*shape, generator=generator) * scale)

    of_keys = (case.batch, case.kv_heads, case.tokens, case.head_dim)
    inputs = {
        "q": normal(case.batch, case.heads, case.tokens, case.head_dim),
        "k": normal(*of_keys),
        "v": normal(*of_keys),
        "beta": normal(case.kv_heads, case.groups, scale=0.3),
    }
    if case.own:
        inputs["own_scores"] = normal(case.batch, case.tokens, case.groups)
    else:
        inputs["centroids"] = normal(case.kv_heads, case.groups, case.head_dim, scale=0.8)
        inputs["bias"] = normal(case.kv_heads, case.groups, scale=0.3)
    return inputs, normal(*inputs["q"].shape)


def class_scores(case: Case, inputs: dict, keys: torch.Tensor) -> torch.Tensor:
    if case.own:
        return inputs["own_scores"][:, None]
    return ref.class_scores(keys, inputs["centroids"], inputs["bias"])


def groups_of(case: Case, z: torch.Tensor) -> torch.Tensor:
    return ref.assignment(z, TAU).expand(case.batch, case.kv_heads, case.tokens, case.groups)


def is_clear(case: Case, inputs: dict) -> bool:
    """Whether no near tie decides the class of a key or a query's choice."""
    z = class_scores(case, inputs, inputs["k"])
    best = z.sort(-1, descending=True).values
    if (best[..., 0] - best[..., 1]).min() < LEAST_CLASS_GAP:
        return False
    config = case.config(0)
    scores = ref.scores_of(inputs["q"], inputs["k"], groups_of(case, z), inputs["beta"], config)
    mass = ref.estimated_mass(scores, case.kv_heads, config).sort(-1, descending=True).values
    for head, of_head in enumerate(mass.unbind(1)):
        for m in case.by_head[head : head + 1] or case.read:
            if case.own or not 0 < m < case.groups:
                continue
            taken, left = of_head[..., m - 1], of_head[..., m]
            if (((taken - left) / taken)[left >= 0] <= LEAST_MASS_GAP).any():
                return False
    return True


def run(case: Case, inputs: dict, d_out: torch.Tensor, m: int, through_keys: bool):
    """Attention, and the gradients by name; the keys' one with the classes' part or without."""
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    keys = leaves["k"] if through_keys else leaves["k"].detach()
    groups = groups_of(case, class_scores(case, leaves, keys))
    own = inputs["own_scores"].argmax(-1) if case.own else None
    q, k, v, beta = (leaves[name] for name in ("q", "k", "v", "beta"))
    answer = ref.summary_attention(q, k, v, groups, beta, case.config(m), own=own)
    (answer[0] * d_out).sum().backward()
    zero = torch.zeros(())
    return answer, {
        name: x.grad if x.grad is not None else zero.expand_as(x) for name, x in leaves.items()
    }


def check_dense(case: Case, inputs: dict, out: torch.Tensor):
    """With every group read, attention is dense, whatever the groups are."""
    config, times = case.config(case.groups), case.heads // case.kv_heads
    near, far = ref.zones(case.tokens, config)
    k, v = (inputs[name].repeat_interleave(times, 1) for name in ("k", "v"))
    scores = ref.cap(inputs["q"] @ k.transpose(-1, -2) * config.scale, case.softcap)
    dense = scores.masked_fill(~(near | far), -torch.inf).softmax(-1) @ v
    assert torch.allclose(dense, out, atol=1e-12)


def make(case: Case, path: Path, generator: torch.Generator):
    inputs, d_out = draw(case, generator)
    while not is_clear(case, inputs):
        inputs, d_out = draw(case, generator)
    z = class_scores(case, inputs, inputs["k"])
    arrays = {name: exact(x) for name, x in {**inputs, "d_out": d_out}.items()}
    arrays.update(z=fine(z), classes=z.argmax(-1).to(torch.int32))
    for m in case.read:
        (out, lse, chosen, pairs), gradients = run(case, inputs, d_out, m, through_keys=False)
        arrays.update({f"m_{m}/out": fine(out), f"m_{m}/lse": fine(lse)})
        arrays.update({f"m_{m}/chosen": chosen.to(torch.uint8), f"m_{m}/pairs": pairs})
        arrays.update({f"m_{m}/grad_{name}": fine(x) for name, x in gradients.items()})
        if not case.own:
            _, gradients = run(case, inputs, d_out, m, through_keys=True)
            arrays[f"m_{m}/grad_k_through_classes"] = fine(gradients["k"])
        if m == case.groups:
            check_dense(case, inputs, out.detach())
    if case.summary_width:
        arrays["summary_width"] = exact(torch.tensor(case.summary_width))
    if case.by_head:
        arrays["selected_by_head"] = torch.tensor(case.by_head, dtype=torch.int32)
    config = case.config(0)
    write_h5(
        path,
        arrays,
        groups=case.groups,
        window=case.window,
        block=case.block,
        sinks=case.sinks,
        scale=config.scale,
        softcap=float(case.softcap),
        sliding_window=case.sliding_window,
        **({"width": case.width} if case.width else {}),
        **({"per_query_head": 1} if case.per_query_head else {}),
        tau=TAU,
        routing="own" if case.own else "keys",
    )


def main():
    args = arguments(__doc__.splitlines()[0], seed=7)
    generator = torch.Generator().manual_seed(args.seed)
    for name, case in CASES.items():
        make(case, args.out / "summary" / f"{name}.h5", generator)


main()
