"""A step of PEFT LoRA, rank 4, all else frozen: transformers' GPT-2 (on c_attn) or SmolLM2's shape (on
q_proj and v_proj) of random weights, fused attention, AdamW, random tokens, batch 1.
"""

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

import common


def gpt2(options):
    config = GPT2Config(
        n_positions=max(1024, options.T),
        n_layer=options.layers,
        n_head=options.heads,
        n_embd=options.width,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    return config, {"target_modules": ["c_attn"], "fan_in_fan_out": True}


def smollm2(options):
    """SmolLM2-135M's shape."""
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=max(8192, options.T),
        tie_word_embeddings=True,
    )
    return config, {"target_modules": ["q_proj", "v_proj"]}


MODELS = {"gpt2": gpt2, "smollm2": smollm2}


def main():
    parser = common.parser(__doc__)
    parser.add_argument("--model", choices=MODELS, default="gpt2")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--T", type=int, default=1024)
    parser.add_argument("--rank", type=int, default=4)
    parser.add_argument("--layers", type=int, default=12, help="of gpt2, as --heads and --width")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    options = parser.parse_args()
    common.start(options)
    config, targets = MODELS[options.model](options)
    config.use_cache = False
    base = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    lora = LoraConfig(r=options.rank, lora_alpha=2 * options.rank, lora_dropout=0.0, **targets)
    model = get_peft_model(base, lora).train()
    run = torch.compile(model) if options.compile else model
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    ids = torch.randint(0, config.vocab_size, (1, options.T))

    def step():
        with common.autocast(options.dtype):
            loss = run(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    times = common.milliseconds(step, options.repeats, warm_up=2)
    name = f"peft lora {options.model} r={options.rank}" + (" compiled" if options.compile else "")
    common.report(name, "step", options, options.T, times)


if __name__ == "__main__":
    main()
