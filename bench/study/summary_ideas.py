#!/usr/bin/env python3
"""Measures changes to groups of keys and summary tokens before any is built: KL to dense attention at equal density.

  python3 bench/study/summary_ideas.py MODEL.gguf --adapter FIT.h5 --fit-text TEXT --text TEXT... --out ROWS.jsonl

MODEL is a Llama with tied embeddings, FIT.h5 what `focus fit` wrote for it, --fit-text the text that it was fitted on. It
needs torch, gguf and h5py. The baseline has the KL of `focus eval` in float32. Every pair is scored and then masked, so
no time may be measured here. FOCUS names the program, which encodes the texts.
"""

import argparse
import json
import lzma
import os
import subprocess
from pathlib import Path

import gguf
import h5py
import torch
from torch.nn.functional import normalize


FOCUS = os.environ.get("FOCUS", "build/release/focus")
CONTEXT = 2048
WINDOW, BLOCK, SINKS = 16, 16, 4  # w, B and s of docs/method.md
CHUNK = 256  # queries whose scores are held at a time; CONTEXT is a multiple
NONE = -torch.inf


class Llama:
    """The model in float32; `attend(layer, q, k, v)` is its attention, [heads, tokens, dim] each."""

    def __init__(self, path):
        file = gguf.GGUFReader(path)
        number = lambda key: file.fields["llama." + key].contents()
        self.layers, self.heads = number("block_count"), number("attention.head_count")
        self.kv_heads, self.eps = number("attention.head_count_kv"), number("attention.layer_norm_rms_epsilon")
        self.base, self.dim = number("rope.freq_base"), number("embedding_length") // self.heads
        self.w = {t.name.removesuffix(".weight"): torch.tensor(gguf.dequantize(t.data, t.tensor_type)) for t in file.tensors}

    def norm(self, x, name):
        return torch.nn.functional.rms_norm(x, x.shape[-1:], self.w[name], self.eps)

    def rotate(self, x):
        """The file's order: a pair of numbers side by side is rotated. The adapter's: halves."""
        angle = torch.arange(x.shape[1])[:, None] * self.base ** (-torch.arange(0, self.dim, 2) / self.dim)
        a, b = x[..., ::2], x[..., 1::2]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def hidden(self, ids, attend):
        x = self.w["token_embd"][ids]
        for layer in range(self.layers):
            w = lambda name: self.w[f"blk.{layer}.{name}"]
            h = self.norm(x, f"blk.{layer}.attn_norm")
            q, k, v = ((h @ w(f"attn_{name}").T).view(len(ids), -1, self.dim).transpose(0, 1) for name in "qkv")
            out = attend(layer, self.rotate(q), self.rotate(k), v)
            x = x + out.transpose(0, 1).reshape(len(ids), -1) @ w("attn_output").T
            h = self.norm(x, f"blk.{layer}.ffn_norm")
            x = x + (torch.nn.functional.silu(h @ w("ffn_gate").T) * (h @ w("ffn_up").T)) @ w("ffn_down").T
        return self.norm(x, "output_norm")

    def log_probabilities(self, hidden):
        return (hidden @ self.w["token_embd"].T).log_softmax(-1)


def dense(layer, q, k, v):
    k, v = (x.repeat_interleave(len(q) // len(x), 0) for x in (k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def nearest(keys, centroids):
    return (keys @ centroids.mT - centroids.square().sum(-1)[..., None, :] / 2).argmax(-1)


def head_budgets(needs, mean, most):
    """m of each head: in proportion to its need to the power of 0.35, `mean` on average."""
    weights, low, high = needs.double() ** 0.35, 0.0, 1e6
    budgets = lambda factor: (factor * weights + 0.5).floor().clamp(1, most).long()
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if budgets(middle).sum() <= mean * needs.numel() else (low, middle)
    return budgets(low)


def running(x, classes, first_block, groups, blocks):
    """Sums of rows of x [tokens, n] by group, of those that each block of queries sees: [blocks, groups, n]."""
    sums, kept = torch.zeros(blocks, groups, x.shape[1]), first_block < blocks
    sums.index_put_((first_block[kept], classes[kept]), x[kept], accumulate=True)
    return sums.cumsum_(0)


def summary(q, k, v, classes, budgets, groups, width=None, tilt=None):
    """Attention of the query heads of one key head, q [heads, tokens, dim], k and v [tokens, dim]; also the pairs that it
    computes. width [heads]: a factor of the width in a summary token's own score. tilt: "full", its value is the mean
    value and Cov(v, k) q; "rank 1", the largest singular direction of that, of each block's sums."""
    heads, tokens, dim = q.shape
    blocks, position = tokens // BLOCK, torch.arange(tokens)
    # Block after block, in it head after head: [blocks, heads * BLOCK, dim].
    queries = dim**-0.5 * q.view(heads, blocks, BLOCK, dim).transpose(0, 1).reshape(blocks, -1, dim)
    by_row = lambda x: x.repeat_interleave(BLOCK)[:, None]  # of each head, for the rows of a block
    first_block = torch.where(position < SINKS, blocks, (position + WINDOW) // BLOCK + 1)
    sums = lambda x: running(x, classes, first_block, groups, blocks)
    n = sums(torch.ones(tokens, 1))
    kb, vb, squares = (sums(torch.cat([k, v, k * k], 1)) / n.clamp(min=1)).split(dim, -1)
    score = queries @ kb.mT  # [blocks, rows, groups]
    half_variance = queries.square() @ (squares - kb * kb).clamp(min=0).mT / 2
    column = score + n.log().mT
    order = (column + half_variance).topk(int(budgets.max()), -1).indices
    taken = (torch.arange(order.shape[-1]) < by_row(budgets)).expand(order.shape)
    reads = torch.zeros(score.shape, dtype=torch.bool).scatter_(-1, order, taken)
    if width is not None:
        column = column + by_row(width) * half_variance
    column = column.masked_fill(reads, NONE)
    summary_tokens = int((column > NONE).sum())
    pairs = int((reads * n.mT).sum()) + summary_tokens * (2 if tilt else 1)  # a tilt is a product and a value more
    pairs += heads * int(torch.minimum(position, position % BLOCK + WINDOW + SINKS).add(1).sum())
    if tilt == "rank 1":
        cov = sums((v[:, :, None] * k[:, None]).flatten(1)).view(blocks, groups, dim, dim) / n.clamp(min=1)[..., None]
        cov -= vb[..., None] * kb[..., None, :]
        u = torch.randn(blocks, groups, dim, 1, generator=torch.Generator().manual_seed(1))
        for _ in range(5):
            u = normalize(cov.mT @ (cov @ u), dim=-2)
        slope, along = (cov @ u)[..., 0], queries @ u[..., 0].mT
    out = torch.empty(queries.shape)
    for begin in range(0, tokens, CHUNK):
        end, b = begin + CHUNK, slice(begin // BLOCK, (begin + CHUNK) // BLOCK)
        flat = lambda x: x[b].reshape(-1, x.shape[-1])
        by_key = lambda x: x.T.contiguous()[classes[:end]]  # [keys, rows], from values by group
        # What is read of each key: 0, or minus infinity. Only the last keys are local to some queries and not to others.
        bias = by_key(torch.zeros(heads * CHUNK, groups).masked_fill_(~flat(reads), NONE))
        bias[:SINKS] = 0
        band = slice(max(0, begin - WINDOW), end)
        i, j = position[begin:end].view(-1, 1, BLOCK).expand(-1, heads, -1).flatten(), position[band, None]
        local = (j <= i) & ((j >= i // BLOCK * BLOCK - WINDOW) | (j < SINKS))
        distant = (j <= i) & ~local
        bias[band] = bias[band].masked_fill(~distant, NONE).masked_fill(local, 0)
        p, rest = torch.addmm(bias, k[:end], flat(queries).T), flat(column)
        top = torch.maximum(p.amax(0), rest.amax(1))
        p, rest = p.sub_(top).exp_(), (rest - top[:, None]).exp_()
        total = p.sum(0) + rest.sum(1)
        result, weight = p.T @ v[:end], rest
        by_block = lambda x: x.view(-1, heads * BLOCK, x.shape[-1])
        if tilt == "rank 1":
            result += (by_block(rest * flat(along)) @ slope[b]).view(-1, dim)
        elif tilt == "full":  # Cov(v, k) q is the mean of v (q.k - q.kb)
            share = by_key((by_block(rest) / n[b].clamp(min=1).mT).view(-1, groups))
            share[:SINKS] = 0
            share[band] *= distant
            result += share.mul_(k[:end] @ flat(queries).T).T @ v[:end]
            weight = rest - rest * flat(score)
        result += (by_block(weight) @ vb[b]).view(-1, dim)
        out[b] = by_block(result / total[:, None])
    return out.view(blocks, heads, BLOCK, dim).transpose(0, 1).reshape(q.shape), pairs


def lloyd_round(keys, centroids):
    """Groups by the means of the groups that the centroids give. Not causal: a mean is of all keys of the prompt."""
    members = torch.nn.functional.one_hot(nearest(keys, centroids)[:, SINKS:], centroids.shape[1]).float()
    n = members.sum(1)[..., None]
    return nearest(keys, torch.where(n > 0, members.mT @ keys[:, SINKS:] / n.clamp(min=1), centroids))


def running_means(keys, centroids, weight=4.0):
    """The same, causal: a block's keys join the nearest of the means so far; a centroid counts as `weight` keys."""
    sums, n, classes = weight * centroids, torch.full(centroids.shape[:2], weight), []
    for begin in range(0, keys.shape[1], BLOCK):
        block = keys[:, begin : begin + BLOCK]
        classes.append(nearest(block, sums / n[..., None]))
        members = torch.nn.functional.one_hot(classes[-1], n.shape[1]).float()
        members[:, : SINKS if begin == 0 else 0] = 0
        sums, n = sums + members.mT @ block, n + members.sum(1)
    return torch.cat(classes, 1)


def k_means(keys, groups, by_direction):
    """Of one head's keys [tokens, dim]: the rule that gives keys their groups, the nearest or by cosine."""
    random = torch.Generator().manual_seed(1)
    unit = lambda x: normalize(x, dim=-1) if by_direction else x
    x = unit(keys)
    centroids = x[torch.randperm(len(x), generator=random)[:groups]]
    for _ in range(12):
        classes = nearest(x, centroids)
        n = torch.bincount(classes, minlength=groups)[:, None]
        means = torch.zeros_like(centroids).index_add_(0, classes, x) / n.clamp(min=1)
        centroids = unit(torch.where(n > 0, means, x[torch.randint(len(x), (groups,), generator=random)]))
    return lambda x: nearest(unit(x), centroids)


def gain_shape(keys, groups, lengths):
    """The same by direction and length: groups / lengths directions, each with as many keys in each of its lengths."""
    direction, bounds = k_means(keys, groups // lengths, True), torch.zeros(groups // lengths, lengths - 1)
    for c in direction(keys).unique():
        bounds[c] = keys[direction(keys) == c].norm(dim=-1).quantile(torch.arange(1, lengths) / lengths)
    return lambda x: direction(x) * lengths + (x.norm(dim=-1, keepdim=True) > bounds[direction(x)]).sum(-1)


class Study:
    def __init__(self, model, adapter, fit_ids):
        self.model, self.share = model, model.heads // model.kv_heads
        with h5py.File(adapter) as file:
            of_layers = lambda name: [torch.tensor(file["focus"][f"layer_{i:03}/{name}"][()]).float() for i in range(model.layers)]
            self.centroids, self.needs = of_layers("centroids"), torch.stack(of_layers("needs"))
        self.groups = self.centroids[0].shape[1]
        windows = fit_ids[: len(fit_ids) // CONTEXT * CONTEXT].view(-1, CONTEXT)
        fitted = [i * len(windows) // 8 for i in range(8)]  # 16,384 tokens, as `focus fit` chooses them
        self.fitted_on = [torch.cat(of_layer, 1) for of_layer in zip(*([k for _, k, _ in self.inputs(windows[i])] for i in fitted))]
        self.held_out = self.inputs(windows[fitted[1] // 2])

    def inputs(self, ids):
        """q, k and v of every layer under dense attention."""
        found = []
        self.model.hidden(ids, lambda layer, *qkv: (found.append(qkv), dense(layer, *qkv))[1])
        return found

    def fitted(self, layer, keys):
        return nearest(keys, self.centroids[layer])

    def forms(self):
        """Names of what is measured, each with the groups of a layer's keys and further arguments of summary()."""
        by_head = lambda rules: lambda layer, keys: torch.stack([rule(k) for rule, k in zip(rules[layer], keys)])
        refitted = lambda rule, number: by_head([[rule(k, self.groups, number) for k in keys] for keys in self.fitted_on])
        yield "baseline", self.fitted, {}
        yield "tilt, Cov(v, k)", self.fitted, {"tilt": "full"}
        yield "tilt, rank 1", self.fitted, {"tilt": "rank 1"}
        yield "width factor 0.5", self.fitted, {"width": torch.full(self.needs.shape, 0.5)}
        yield "width factor by head", self.fitted, {"width": self.fitted_width()}
        yield "Lloyd round, not causal", lambda layer, keys: lloyd_round(keys, self.centroids[layer]), {}
        yield "Lloyd round, running means", lambda layer, keys: running_means(keys, self.centroids[layer]), {}
        yield "k-means, other seed", refitted(k_means, False), {}
        yield "128 directions, 1 length", refitted(gain_shape, 1), {}
        yield "64 directions, 2 lengths", refitted(gain_shape, 2), {}

    def attend(self, layer, q, k, v, m, groups_of, width=None, tilt=None):
        budgets, classes = head_budgets(self.needs, m, self.groups)[layer], groups_of(layer, k)
        heads = [slice(h * self.share, (h + 1) * self.share) for h in range(len(k))]
        done = [summary(q[of], k[h], v[h], classes[h], budgets[of], self.groups, None if width is None else width[layer, of], tilt)
                for h, of in enumerate(heads)]
        return torch.cat([out for out, _ in done]), sum(pairs for _, pairs in done)

    def fitted_width(self):
        """Of each head the factor of least squared error of its output, m=2, on text that k-means has not seen."""
        factors, errors = torch.tensor([0, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1]), []
        for factor in factors:
            out = lambda layer, qkv: self.attend(layer, *qkv, 2, self.fitted, factor.expand(self.needs.shape))[0]
            errors.append(torch.stack([(out(layer, qkv) - dense(layer, *qkv)).square().sum((1, 2))
                                       for layer, qkv in enumerate(self.held_out)]))
        return factors[torch.stack(errors).argmin(0)]

    def measure(self, ids, teacher, m, groups_of, form):
        """Mean KL to the teacher's log-probabilities, and density."""
        counts = []

        def attend(layer, *qkv):
            out, pairs = self.attend(layer, *qkv, m, groups_of, **form)
            counts.append(pairs / (self.model.heads * len(ids) * (len(ids) + 1) / 2))
            return out

        parts = zip(self.model.hidden(ids, attend)[:-1].split(CHUNK), teacher.split(CHUNK))
        kl = sum((base.exp() * (base - self.model.log_probabilities(part))).sum().item() for part, base in parts)
        return kl / len(teacher), sum(counts) / len(counts)


def token_ids(model, text):
    content = lzma.open(text).read() if text.suffix == ".xz" else text.read_bytes()
    encode = subprocess.run([FOCUS, "tokenizer", "encode", model], input=content, stdout=subprocess.PIPE, check=True)
    return torch.tensor([int(x) for x in encode.stdout.replace(b",", b" ").split()])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    for name, more in (("adapter", {}), ("fit-text", {}), ("text", {"nargs": "+"}), ("out", {})):
        parser.add_argument(f"--{name}", type=Path, required=True, **more)
    parser.add_argument("--windows", type=int, default=2, help="of each text")
    parser.add_argument("--m", type=int, nargs="+", default=[2, 6])
    said = parser.parse_args()
    torch.set_grad_enabled(False)
    model, rows = Llama(said.model), {}
    study = Study(model, said.adapter, token_ids(said.model, said.fit_text))
    forms = list(study.forms())
    windows = [ids for text in said.text for ids in token_ids(said.model, text).split(CONTEXT)[: said.windows]]
    for ids in windows:
        teacher = model.log_probabilities(model.hidden(ids, dense))[:-1]
        for name, groups_of, form in forms:
            for m in said.m:
                rows.setdefault((name, m), []).append(study.measure(ids, teacher, m, groups_of, form))
    with said.out.open("w", encoding="utf-8") as out:
        for (name, m), measured in rows.items():
            kl, density = torch.tensor(measured, dtype=torch.float64).T
            base, base_density = torch.tensor(rows["baseline", m], dtype=torch.float64).T
            row = {"form": name, "m": m, "texts": [x.name for x in said.text], "windows": len(kl), "tokens": len(kl) * (CONTEXT - 1),
                   "density": density.mean().item(), "density_baseline": base_density.mean().item(),
                   "kl": kl.mean().item(), "kl_baseline": base.mean().item(),
                   "difference": (kl - base).mean().item(), "error": (kl - base).std().item() / len(kl) ** 0.5}
            print(json.dumps(row), file=out)


if __name__ == "__main__":
    main()
