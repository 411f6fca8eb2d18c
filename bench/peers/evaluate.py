"""Perplexity of random tokens by windows, as in transformers' documentation of strided evaluation:
a Hugging Face folder, `--windows` windows of `--T` tokens, each scoring its last half, one after the
other in float32 with fused attention. A time is that of all windows.
"""

import torch
from transformers import AutoModelForCausalLM

import common


def main():
    parser = common.parser(__doc__)
    parser.add_argument("folder")
    parser.add_argument("--T", type=int, default=1024)
    parser.add_argument("--windows", type=int, default=4)
    options = parser.parse_args()
    common.start(options)
    model = AutoModelForCausalLM.from_pretrained(
        options.folder, dtype=common.DTYPES[options.dtype], attn_implementation="sdpa"
    ).eval()
    stride = options.T // 2
    ids = torch.randint(0, model.config.vocab_size, (1, stride * (options.windows + 1)))

    def score():
        with torch.inference_mode():
            for begin in range(0, stride * options.windows, stride):
                window = ids[:, begin : begin + options.T]
                labels = window.clone()
                labels[:, :stride] = -100
                model(input_ids=window, labels=labels, use_cache=False).loss.item()

    times = common.milliseconds(score, options.repeats)
    common.report("transformers", "evaluation", options, stride * options.windows, times)


if __name__ == "__main__":
    main()
