"""torch.nn.Linear without bias and gradients, [--m, --k] times [--n, --k] transposed; with --int8 as
quantize_dynamic() makes it (weights rounded once, rows of the input each time, one scale for all of
either).
"""

import torch
from torch import nn

import common


def main():
    parser = common.parser(__doc__)
    for name in ("m", "k", "n"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--int8", action="store_true")
    options = parser.parse_args()
    common.start(options)
    dtype = common.DTYPES[options.dtype]
    layer = nn.Sequential(nn.Linear(options.k, options.n, bias=False)).eval().to(dtype)
    x = torch.randn(options.m, options.k).to(dtype)
    if options.int8:
        layer = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, dtype=torch.qint8)

    def run():
        with torch.inference_mode():
            layer(x)

    times = common.milliseconds(run, options.repeats, warm_up=3)
    flops = 2 * options.m * options.k * options.n
    common.report("linear", "forward", options, options.m, times, flops)


if __name__ == "__main__":
    main()
