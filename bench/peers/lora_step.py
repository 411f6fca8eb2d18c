"""A step of PEFT LoRA, rank 4 on c_attn, all else frozen: transformers' GPT-2 of random weights,
fused attention, AdamW, random tokens, batch 1.
"""

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

import common


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--T", type=int, default=1024)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    options = parser.parse_args()
    common.start(options)
    config = GPT2Config(
        n_positions=max(1024, options.T),
        n_layer=options.layers,
        n_head=options.heads,
        n_embd=options.width,
        attn_implementation="sdpa",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    lora = LoraConfig(
        r=options.rank,
        lora_alpha=2 * options.rank,
        lora_dropout=0.0,
        target_modules=["c_attn"],
        fan_in_fan_out=True,
    )
    model = get_peft_model(GPT2LMHeadModel(config), lora).train()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
    ids = torch.randint(0, config.vocab_size, (1, options.T))

    def step():
        with common.autocast(options.dtype):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = common.milliseconds(step, options.repeats, warm_up=2)
    common.report(f"peft lora r={options.rank}", "step", options, options.T, times)


if __name__ == "__main__":
    main()
