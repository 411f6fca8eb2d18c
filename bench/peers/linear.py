"""torch.nn.Linear without bias and gradients, [--m, --k] times [--n, --k] transposed: --kind int8 as
quantize_dynamic() makes it (weights rounded once, rows of the input each time, one scale for all of
either), fp32 and bf16 as they are.
"""

import torch
from torch import nn

import common


def main():
    parser = common.parser(__doc__)
    for name in ("m", "k", "n"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--kind", choices=["fp32", "bf16", "int8"], default="fp32")
    options = parser.parse_args()
    common.start(options)
    layer = nn.Sequential(nn.Linear(options.k, options.n, bias=False)).eval()
    x = torch.randn(options.m, options.k)
    if options.kind == "int8":
        layer = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, dtype=torch.qint8)
    if options.kind == "bf16":
        layer, x = layer.to(torch.bfloat16), x.to(torch.bfloat16)

    def run():
        with torch.inference_mode():
            layer(x)

    times = common.milliseconds(run, options.repeats, warm_up=3)
    flops = 2 * options.m * options.k * options.n
    common.report(f"linear {options.kind}", "forward", options, options.m, times, flops)


if __name__ == "__main__":
    main()
