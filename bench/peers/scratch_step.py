"""A training step of a small GPT-2 from scratch, all weights trained, as one would write it in
PyTorch: fused qkv, scaled_dot_product_attention, GELU by tanh, tied head, fused AdamW on random
tokens, no dropout. --compile hands model and loss to torch.compile.
"""

import torch
import torch.nn.functional as F
from torch import nn

import common


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, seq_len, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, seq_len, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, seq_len, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.tokens = nn.Embedding(options.vocab, options.width)
        self.positions = nn.Embedding(options.T, options.width)
        self.blocks = nn.ModuleList(
            Block(options.width, options.heads) for _ in range(options.layers)
        )
        self.norm = nn.LayerNorm(options.width)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--T", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--vocab", type=int, default=65)
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    common.start(options)
    model = Model(options).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), fused=True)
    ids = torch.randint(0, options.vocab, (options.batch, options.T + 1))
    loss_of = torch.compile(model) if options.compile else model

    def step():
        with common.autocast(options.dtype):
            loss = loss_of(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    name = "compiled" if options.compile else "eager"
    times = common.milliseconds(step, options.repeats, warm_up=2)
    size = sum(parameter.numel() for parameter in model.parameters())
    common.report(name, "scratch step", options, options.batch * options.T, times, parameters=size)


if __name__ == "__main__":
    main()
