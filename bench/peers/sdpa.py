"""torch.nn.functional.scaled_dot_product_attention, causal, batch 1, heads of 64.

Work is counted as focus_bench counts it: 4 operations per number of a head and attended pair, and
3.5 times that for forward and backward.
"""

import torch
import torch.nn.functional as F

import common

HEAD_DIM = 64


def measure(options, heads, seq_len, what):
    backward = what == "forward_backward"
    shape = (1, heads, seq_len, HEAD_DIM)
    q, k, v = (
        torch.randn(shape).to(common.DTYPES[options.dtype]).requires_grad_(backward)
        for _ in range(3)
    )
    d_out = torch.ones(shape, dtype=q.dtype)

    def run():
        if not backward:
            with torch.no_grad():
                F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return
        q.grad = k.grad = v.grad = None
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(d_out)

    pairs = seq_len * (seq_len + 1) // 2
    flops = 4 * pairs * HEAD_DIM * heads * (3.5 if backward else 1)
    times = common.milliseconds(run, options.repeats)
    common.report(f"sdpa heads:{heads}", what, options, seq_len, times, flops)


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192,16384")
    parser.add_argument("--what", default="forward,forward_backward")
    options = parser.parse_args()
    common.start(options)
    for seq_len in map(int, options.lengths.split(",")):
        for what in options.what.split(","):
            measure(options, options.heads, seq_len, what)


if __name__ == "__main__":
    main()
