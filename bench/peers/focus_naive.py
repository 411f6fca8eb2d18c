"""A retrofit step of Focus as one would write it down in PyTorch: GPT-2's shape with random frozen
weights, the soft gate as a matrix [T, T] for each head, autograd for the rest. The centroids and
projections of all layers are trained by AdamW on random tokens; batch 1.

--gate logit is the paper's Eq. 2, (q.k) * sigmoid(lambda a); affinity adds log(a + floor) to q.k.
--attention fused hands the affinity's bias to scaled_dot_product_attention as its mask.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

import common

VOCAB = 50257
ROUTING_DIM, SINKHORN_ITERS, TEMPERATURE = 16, 10, 1.0
STEEPNESS, FLOOR = 8.0, 1e-6


class Routing(nn.Module):
    """g [batch, T, groups] by Sinkhorn over the sequence, in log space."""

    def __init__(self, width, groups):
        super().__init__()
        self.projection = nn.Parameter(torch.randn(width, ROUTING_DIM) / math.sqrt(width))
        self.centroids = nn.Parameter(torch.randn(groups, ROUTING_DIM))

    def forward(self, h):
        log_g = ((h @ self.projection) @ self.centroids.t()).float() / TEMPERATURE
        for _ in range(SINKHORN_ITERS):
            log_g = log_g - torch.logsumexp(log_g, 1, keepdim=True)
            log_g = log_g - torch.logsumexp(log_g, 2, keepdim=True)
        return log_g.exp()


class Block(nn.Module):
    def __init__(self, options):
        super().__init__()
        width = options.width
        self.heads, self.gate, self.fused = options.heads, options.gate, options.fused
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.requires_grad_(False)
        self.routing = Routing(width, options.groups)

    def attention(self, q, k, v, g, causal, local):
        affinity = g @ g.transpose(1, 2)
        scale = 1 / math.sqrt(q.shape[-1])
        if self.gate == "logit":
            gate = torch.sigmoid(STEEPNESS * affinity).masked_fill(local, 1.0)[:, None]
            scores = (q @ k.transpose(-1, -2)) * gate * scale
        else:
            bias = torch.log(affinity + FLOOR).masked_fill(local, 0.0)[:, None]
            if self.fused:
                bias = bias.masked_fill(~causal, -math.inf).to(q.dtype)
                return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
            scores = (q @ k.transpose(-1, -2)) * scale + bias
        return torch.softmax(scores.masked_fill(~causal, -math.inf), -1).to(v.dtype) @ v

    def forward(self, x, causal, local):
        batch, seq_len, width = x.shape
        h = self.norm_1(x)
        q, k, v = (
            y.view(batch, seq_len, self.heads, -1).transpose(1, 2)
            for y in self.qkv(h).split(width, 2)
        )
        y = self.attention(q, k, v, self.routing(h), causal, local)
        x = x + self.out(y.transpose(1, 2).reshape(batch, seq_len, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, options.width)
        self.positions = nn.Embedding(options.T, options.width)
        self.norm = nn.LayerNorm(options.width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        self.requires_grad_(False)
        self.blocks = nn.ModuleList(Block(options) for _ in range(options.layers))
        distance = torch.arange(options.T)[:, None] - torch.arange(options.T)[None, :]
        self.register_buffer("causal", distance >= 0)
        self.register_buffer("local", (distance >= 0) & (distance <= options.window))

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = block(x, self.causal, self.local)
        logits = self.norm(x) @ self.tokens.weight.t()
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--gate", choices=("logit", "affinity"), default="affinity")
    parser.add_argument("--attention", choices=("explicit", "fused"), default="explicit")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--T", type=int, default=1024)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    options = parser.parse_args()
    options.fused = options.attention == "fused"
    if options.fused and options.gate == "logit":
        parser.error("--attention fused takes a bias: it goes with --gate affinity alone")
    common.start(options)
    model = Model(options)
    trained = [p for p in model.parameters() if p.requires_grad]
    run = torch.compile(model) if options.compile else model
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    ids, targets = torch.randint(0, VOCAB, (2, 1, options.T))

    def step():
        with common.autocast(options.dtype):
            loss = run(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = common.milliseconds(step, options.repeats, warm_up=2)
    mode = "compiled" if options.compile else "eager"
    name = f"focus_naive {options.gate} {options.attention} {mode}"
    common.report(name, "step", options, options.T, times)


if __name__ == "__main__":
    main()
