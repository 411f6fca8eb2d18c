#!/usr/bin/env python3
"""Writes a Hugging Face folder with random weights in bf16, of a published shape, in shards as
published models come: to measure starting and memory where no model is at hand.

    python3 bench/random_model.py llama-1.1b FOLDER [--shard-gb 2]
"""

import argparse
import json
import pathlib
import struct

import numpy as np

LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
         "vocab_size": 32000, "bos_token_id": 1, "eos_token_id": 2}
SHAPES = {
    "gpt2-124m": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 768,
                  "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257,
                  "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
    "llama-1.1b": LLAMA | {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
                           "num_attention_heads": 32, "num_key_value_heads": 4,
                           "max_position_embeddings": 2048},
    "llama-7b": LLAMA | {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                         "num_attention_heads": 32, "num_key_value_heads": 32,
                         "max_position_embeddings": 4096},
}


def gpt2_tensors(c):
    width = c["n_embd"]
    yield "transformer.wte.weight", (c["vocab_size"], width)
    yield "transformer.wpe.weight", (c["n_positions"], width)
    for i in range(c["n_layer"]):
        head = f"transformer.h.{i}."
        for name, inner, outer in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                                   ("mlp.c_fc", width, 4 * width), ("mlp.c_proj", 4 * width, width)):
            yield f"{head}{name}.weight", (inner, outer)
            yield f"{head}{name}.bias", (outer,)
        for name in ("ln_1", "ln_2"):
            yield f"{head}{name}.weight", (width,)
            yield f"{head}{name}.bias", (width,)
    yield "transformer.ln_f.weight", (width,)
    yield "transformer.ln_f.bias", (width,)


def llama_tensors(c):
    width, inner = c["hidden_size"], c["intermediate_size"]
    kv = width // c["num_attention_heads"] * c["num_key_value_heads"]
    yield "model.embed_tokens.weight", (c["vocab_size"], width)
    for i in range(c["num_hidden_layers"]):
        head = f"model.layers.{i}."
        for name, shape in (("self_attn.q_proj", (width, width)), ("self_attn.k_proj", (kv, width)),
                            ("self_attn.v_proj", (kv, width)), ("self_attn.o_proj", (width, width)),
                            ("mlp.gate_proj", (inner, width)), ("mlp.up_proj", (inner, width)),
                            ("mlp.down_proj", (width, inner)), ("input_layernorm", (width,)),
                            ("post_attention_layernorm", (width,))):
            yield f"{head}{name}.weight", shape
    yield "model.norm.weight", (width,)
    yield "lm_head.weight", (c["vocab_size"], width)


def bf16(rng, name, count):
    """Parts of a tensor's numbers: norms are 1, biases 0, the rest normal(0, 0.02)."""
    for begin in range(0, count, 1 << 24):
        size = min(1 << 24, count - begin)
        if name.endswith(".bias"):
            x = np.zeros(size, np.float32)
        elif "norm" in name or ".ln_" in name:
            x = np.ones(size, np.float32)
        else:
            x = rng.standard_normal(size, np.float32) * np.float32(0.02)
        yield (x.view(np.uint32) >> 16).astype("<u2").tobytes()


def write_shard(path, tensors, rng):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            for part in bf16(rng, name, int(np.prod(shape))):
                file.write(part)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--shard-gb", type=float, default=2)
    arguments = parser.parse_args()
    config = SHAPES[arguments.shape]
    tensors = list((gpt2_tensors if config["model_type"] == "gpt2" else llama_tensors)(config))
    shards, size = [[]], 0
    for name, shape in tensors:
        bytes_ = 2 * int(np.prod(shape))
        if shards[-1] and size + bytes_ > arguments.shard_gb * 1e9:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += bytes_
    arguments.folder.mkdir(parents=True)
    (arguments.folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    rng, where = np.random.default_rng(1), {}
    for i, shard in enumerate(shards):
        name = (f"model-{i + 1:05}-of-{len(shards):05}.safetensors" if len(shards) > 1
                else "model.safetensors")
        write_shard(arguments.folder / name, shard, rng)
        where |= {tensor: name for tensor, _ in shard}
    if len(shards) > 1:
        total = sum(2 * int(np.prod(shape)) for _, shape in tensors)
        (arguments.folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": total}, "weight_map": where}))


if __name__ == "__main__":
    main()
