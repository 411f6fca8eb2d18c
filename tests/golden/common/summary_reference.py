"""Attention in which an unselected group is one summary token: written for clarity, float64.

Shapes: q [B, H, T, D]; k, v [B, Hkv, T, D]; H a multiple of Hkv, query head h reads key head
h // (H / Hkv). Positions count from 0 in each sequence. docs/method.md has the method.
"""

import dataclasses

import torch

Tensor = torch.Tensor


@dataclasses.dataclass
class SummaryConfig:
    groups: int  # K
    top_groups: int  # m: groups that a query reads exactly; K: every pair, which is dense attention
    window: int  # w
    block: int = 1  # the near zone begins at block * (i // block) - w
    sinks: int = 0  # s: first tokens that are always read and in no group's sums
    scale: float = 1.0
    softcap: float = 0.0  # c tanh(x / c) on scaled scores, of tokens and of mean keys; 0: none
    sliding_window: int = 0  # keys a token sees, itself included; 0: all before it
    tau: float = 1.0  # of the backward pass's soft assignment
    width: float = 0.0  # a: how much of the variance of a group's scores counts in its mass
    per_query_head: bool = False  # each query head selects for itself, not those of a key head together
    by_head: tuple = ()  # m of each query head where they differ; only per query head
    summary_width: tuple = ()  # of each query head: the share of half the variance in a column's score


def zones(tokens: int, cfg: SummaryConfig) -> tuple[Tensor, Tensor]:
    """(near, far) [T, T] bool, disjoint; together they are what the token sees."""
    i, j = torch.arange(tokens)[:, None], torch.arange(tokens)[None, :]
    seen = j <= i
    if cfg.sliding_window:
        seen &= i - j < cfg.sliding_window
    near = seen & ((j >= (i // cfg.block) * cfg.block - cfg.window) | (j < cfg.sinks))
    return near, seen & ~near


def class_scores(keys: Tensor, centroids: Tensor, bias: Tensor) -> Tensor:
    """z_jc = k_j . C_c - |C_c|^2 / 2 + b_c [B, Hkv, T, K]. centroids [Hkv, K, D], bias [Hkv, K]."""
    offsets = bias - centroids.square().sum(-1) / 2
    return keys @ centroids.transpose(-1, -2) + offsets[None, :, None]


def assignment(z: Tensor, tau: float) -> Tensor:
    """One-hot of the largest z (the first of equals); backward goes through softmax(z / tau)."""
    hard = torch.nn.functional.one_hot(z.argmax(-1), z.shape[-1]).to(z.dtype)
    soft = (z / tau).softmax(-1)
    return hard + soft - soft.detach()


def cap(x: Tensor, c: float) -> Tensor:
    return c * torch.tanh(x / c) if c else x


@dataclasses.dataclass
class Scores:
    """What every query has before it chooses; all with query heads."""

    near: Tensor  # [T, T]
    far: Tensor
    raw: Tensor  # scaled scores of tokens [B, H, T, T]
    groups: Tensor  # of the keys [B, H, T, K]
    counts: Tensor  # n_ic: keys of each group that the query sees far away, at least 1
    some: Tensor  # whether there are any
    columns: Tensor  # scores of the summary tokens [B, H, T, K]; -inf where there is none
    widths: Tensor  # variance of the scores of each group's keys, by the keys' variances, likewise


def variances(
    q: Tensor, keys: Tensor, groups: Tensor, far: Tensor, counts: Tensor, cfg: SummaryConfig
) -> Tensor:
    """sum_d (scale q_id)^2 var_icd: var over the keys of group c that query i sees far away."""
    members = far.to(q.dtype)[None, None, :, :, None] * groups[:, :, None]  # [B, H, T, T, K]
    mean = torch.einsum("bhijc,bhjd->bhicd", members, keys) / counts[..., None]
    square = torch.einsum("bhijc,bhjd->bhicd", members, keys**2) / counts[..., None]
    return torch.einsum("bhid,bhicd->bhic", (cfg.scale * q) ** 2, square - mean**2)


def scores_of(q: Tensor, k: Tensor, groups: Tensor, beta: Tensor, cfg: SummaryConfig) -> Scores:
    times = q.shape[1] // k.shape[1]
    keys, groups = k.repeat_interleave(times, 1), groups.repeat_interleave(times, 1)
    near, far = zones(q.shape[2], cfg)
    counted = far.to(q.dtype) @ groups
    some = counted.detach() > 0.5
    counts = torch.where(some, counted, torch.ones_like(counted))
    raw = q @ keys.transpose(-1, -2) * cfg.scale
    # The score of the mean key is the mean of the scores before the soft-cap.
    mean_score = ((raw * far) @ groups) / counts
    offsets = torch.log(counts) + beta.repeat_interleave(times, 0)[None, :, None]
    columns = (cap(mean_score, cfg.softcap) + offsets).masked_fill(~some, -torch.inf)
    widths = variances(q, keys, groups, far, counts, cfg)
    if cfg.softcap:  # the cap's slope at the mean score, squared
        widths = widths * (1 - torch.tanh(mean_score / cfg.softcap) ** 2) ** 2
    return Scores(near, far, raw, groups, counts, some, columns, widths)


def estimated_mass(s: Scores, kv_heads: int, cfg: SummaryConfig) -> Tensor:
    """Of each group, for the heads that select: all query heads [B, H, T, K], or summed over a key
    head's query heads [B, Hkv, T, K]; -1 where it is empty."""
    selecting = s.raw.shape[1] if cfg.per_query_head else kv_heads
    with torch.no_grad():
        near_scores = cap(s.raw, cfg.softcap).masked_fill(~s.near, -torch.inf)
        columns = s.columns + cfg.width / 2 * s.widths
        whole = torch.cat([near_scores, columns], -1).logsumexp(-1, keepdim=True)
        shape = (s.raw.shape[0], selecting, -1, *s.columns.shape[2:])
        mass = (columns - whole).exp().view(shape).sum(2)
        return mass.masked_fill(~s.some.view(shape)[:, :, 0], -1.0)


def selection(s: Scores, kv_heads: int, cfg: SummaryConfig, own: Tensor | None) -> Tensor:
    """The groups that a query reads exactly [B, heads that select, T, K] bool; the first of equals."""
    if own is not None:
        one = torch.nn.functional.one_hot(own, cfg.groups).bool()[:, None]
        return one.expand(-1, kv_heads, -1, -1)
    mass = estimated_mass(s, kv_heads, cfg)
    order = mass.sort(dim=-1, descending=True, stable=True).indices
    chosen = torch.zeros_like(mass, dtype=torch.bool)
    if not cfg.by_head:
        return chosen.scatter_(-1, order[..., : cfg.top_groups], True)
    for head, m in enumerate(cfg.by_head):
        chosen[:, head].scatter_(-1, order[:, head, :, :m], True)
    return chosen


def summary_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    groups: Tensor,
    beta: Tensor,
    cfg: SummaryConfig,
    own: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """groups [B, Hkv, T, K]: assignment of each key. beta [Hkv, K] is added to a column's score.

    own [B, T] (hidden-space routing): each query reads this group exactly; else the
    cfg.top_groups of largest estimated mass. Returns out [B, H, T, D], lse [B, H, T], chosen
    [B, heads that select, T, K] bool and pairs [B]: pairs read, tokens and columns, mean over query
    heads.
    """
    tokens = q.shape[2]
    s = scores_of(q, k, groups, beta, cfg)
    chosen = selection(s, k.shape[1], cfg, own)
    reads = chosen.repeat_interleave(q.shape[1] // chosen.shape[1], 1)
    of_read_group = reads.to(q.dtype) @ s.groups.detach().round().transpose(-1, -2) > 0.5
    exact = s.near | (s.far & of_read_group)
    left = s.some & ~reads
    pairs = (exact.sum((-1, -2)) + left.sum((-1, -2))).double().mean(1)
    token_scores = cap(s.raw, cfg.softcap).masked_fill(~exact, -torch.inf)
    columns = s.columns
    if cfg.summary_width:
        columns = columns + torch.tensor(cfg.summary_width)[:, None, None].to(q) / 2 * s.widths
    every = torch.cat([token_scores, columns.masked_fill(reads, -torch.inf)], -1)
    p = every.softmax(-1)
    of_columns = ((p[..., tokens:] / s.counts) @ s.groups.transpose(-1, -2)) * s.far
    out = (p[..., :tokens] + of_columns) @ v.repeat_interleave(q.shape[1] // k.shape[1], 1)
    return out, every.logsumexp(-1), chosen, pairs
