"""Reference implementation of Focus in PyTorch, float64, written for clarity, not speed.

Every T x T matrix is materialised. The scripts that make golden files use it, and it settles what a
formula of docs/method.md means.

Symbols: T tokens, d model width, K groups, d_g routing width, tau temperature, N Sinkhorn
iterations, lambda (`steepness`) of the logit gate, w local window, k groups kept per token in hard
attention.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class FocusConfig:
    groups: int = 4  # K
    routing_dim: int = 16  # d_g
    temperature: float = 0.1  # tau
    sinkhorn_iterations: int = 10  # N
    steepness: float = 8.0  # lambda, used by the logit gate only
    window: int = 128  # w: pairs with i - j <= w are always attended
    gate: str = "logit"  # "logit" (the paper's Eq. 2) | "affinity" (additive, log of g_i.g_j)
    balance: str = (
        "sequence"  # "sequence" (the paper's, sees the future) | "carried" (causal) | "none"
    )
    affinity_floor: float = 1e-6  # keeps log(affinity) finite


def scores(h: Tensor, w_g: Tensor, centroids: Tensor) -> Tensor:
    """S = (h W_g) C^T.  h [B,T,d], w_g [d,d_g], centroids [K,d_g] -> [B,T,K]."""
    return (h @ w_g) @ centroids.T


def sinkhorn_log_potentials(logits: Tensor, iterations: int) -> Tensor:
    """Column (group) log-potentials b [B,K] after `iterations` rounds, for logits = S/tau [B,T,K].

    One round divides by the sums over tokens, then by the sums over groups. In log space, with
    u_i for the rows and b_k for the columns, Q_ik = exp(logits_ik + u_i + b_k) throughout, and
    the last row step makes g_i = softmax_k(logits_ik + b_k): all that a token's assignment
    takes from other tokens is b.
    """
    u = torch.zeros(logits.shape[:-1], dtype=logits.dtype)
    b = torch.zeros(logits.shape[0], logits.shape[-1], dtype=logits.dtype)
    for _ in range(iterations):
        b = -torch.logsumexp(logits + u.unsqueeze(-1), dim=-2)
        u = -torch.logsumexp(logits + b.unsqueeze(-2), dim=-1)
    return b


def assignments(
    h: Tensor, w_g: Tensor, centroids: Tensor, cfg: FocusConfig, carried: Tensor | None = None
) -> Tensor:
    """Soft group assignments g [B,T,K]; rows sum to 1.

    balance = "sequence": Sinkhorn over the tokens of each sequence, differentiated through.
    balance = "carried" : b is `carried` [K], a constant: nothing in g_i depends on another token.
    balance = "none"    : plain softmax (the form that collapses; for ablation).
    """
    logits = scores(h, w_g, centroids) / cfg.temperature
    if cfg.balance == "sequence":
        b = sinkhorn_log_potentials(logits, cfg.sinkhorn_iterations).unsqueeze(-2)
    elif cfg.balance == "carried":
        b = carried
    else:
        b = torch.zeros(cfg.groups, dtype=logits.dtype)
    return torch.softmax(logits + b, dim=-1)


def update_carried(carried: Tensor, logits: Tensor, iterations: int, rate: float) -> Tensor:
    """One moving-average step of the carried potentials, over all tokens of a batch, no gradient.

    The potentials are only defined up to a constant: each estimate is centred (mean over groups
    zero) before it enters the average.
    """
    with torch.no_grad():
        flat = logits.reshape(1, -1, logits.shape[-1])
        b = sinkhorn_log_potentials(flat, iterations)[0]
        b = b - b.mean()
        return (1 - rate) * carried + rate * b


def local_mask(T: int, window: int) -> Tensor:
    i = torch.arange(T)
    return (i[:, None] - i[None, :]) <= window


def causal_mask(T: int) -> Tensor:
    return torch.ones(T, T, dtype=torch.bool).tril()


def gate_scores(s: Tensor, g: Tensor, cfg: FocusConfig) -> Tensor:
    """The soft gate on finished scores s [B,H,T,T]: scaled, soft-capped if the model does."""
    T = s.shape[-1]
    local = local_mask(T, cfg.window)
    affinity = (g @ g.transpose(-1, -2)).unsqueeze(1)
    if cfg.gate == "logit":
        gate = torch.where(
            local, torch.ones((), dtype=s.dtype), torch.sigmoid(cfg.steepness * affinity)
        )
        return s * gate
    bias = torch.where(
        local, torch.zeros((), dtype=s.dtype), torch.log(affinity + cfg.affinity_floor)
    )
    return s + bias


def membership(g: Tensor, k: int) -> Tensor:
    """Top-k groups of each token as a bool mask [B,T,K]; a tie goes to the lower group index."""
    order = torch.sort(g, dim=-1, descending=True, stable=True).indices[..., :k]
    return torch.zeros_like(g, dtype=torch.bool).scatter(-1, order, True)


def hard_mask(g: Tensor, k: int, window: int) -> Tensor:
    """Pairs that are attended [B,T,T]: causal and (share a group, or local)."""
    m = membership(g, k).to(torch.float64)
    share = (m @ m.transpose(-1, -2)) > 0
    T = g.shape[-2]
    return causal_mask(T) & (share | local_mask(T, window))


def repeat_kv(x: Tensor, times: int) -> Tensor:
    return x.repeat_interleave(times, dim=1)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    allowed: Tensor,
    g: Tensor | None = None,
    cfg: FocusConfig | None = None,
    softcap: float | None = None,
    top_k: int | None = None,
) -> tuple[Tensor, Tensor]:
    """q [B,H,T,D], k and v [B,H_kv,T,D] -> (out [B,H,T,D], log-sum-exp [B,H,T]).

    `allowed` [T,T] is the layer's own mask (causal, and its sliding window where it has one).
    Order: scale, soft-cap, gate, mask, softmax.
    """
    times = q.shape[1] // k.shape[1]
    k, v = repeat_kv(k, times), repeat_kv(v, times)
    s = (q @ k.transpose(-1, -2)) * scale
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    mask = allowed[None, None]
    if g is not None and top_k is None:
        s = gate_scores(s, g, cfg)
    elif g is not None:
        mask = mask & hard_mask(g, top_k, cfg.window).unsqueeze(1)
    s = s.masked_fill(~mask, float("-inf"))
    lse = torch.logsumexp(s, dim=-1)
    return torch.softmax(s, dim=-1) @ v, lse
