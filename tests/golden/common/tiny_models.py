"""Tiny random models of transformers, and Focus within them."""

import math
from pathlib import Path

import torch
import transformers
from transformers import AttentionInterface, AutoModelForCausalLM

import focus_reference as ref
from focus_reference import FocusConfig
from golden_files import f32

VOCABULARY = 96  # as many as tests/support/cli.h has characters

COMMON = dict(
    vocab_size=VOCABULARY,
    max_position_embeddings=128,
    initializer_range=0.15,
    pad_token_id=None,
    bos_token_id=0,
    eos_token_id=0,
)
SHAPE = dict(
    hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, **COMMON
)
ROPE_LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=50000.0,
    factor=4.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)


# Each family that the program knows; heads of keys as many as of queries, fewer, and one.
FAMILIES = {
    "gpt2": (
        transformers.GPT2Config,
        dict(n_embd=32, n_layer=2, n_head=4, n_positions=128, vocab_size=VOCABULARY)
        | dict(resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        | dict(initializer_range=0.15, bos_token_id=0, eos_token_id=0),
    ),
    "llama_gqa": (
        transformers.LlamaConfig,
        SHAPE | dict(num_key_value_heads=2, tie_word_embeddings=False, rms_norm_eps=1e-5),
    ),
    "llama3_rope": (
        transformers.LlamaConfig,
        SHAPE
        | dict(num_key_value_heads=1, tie_word_embeddings=True, head_dim=12)
        | dict(rope_parameters=ROPE_LLAMA3),
    ),
    "mistral_sliding": (
        transformers.MistralConfig,
        SHAPE | dict(num_key_value_heads=2, sliding_window=18),
    ),
    "qwen2": (
        transformers.Qwen2Config,
        SHAPE | dict(num_key_value_heads=2, tie_word_embeddings=True),
    ),
    "qwen3": (transformers.Qwen3Config, SHAPE | dict(num_key_value_heads=2, head_dim=12)),
    "olmo2": (transformers.Olmo2Config, SHAPE | dict(num_key_value_heads=4)),
    "gemma2": (  # layers slide in turn
        transformers.Gemma2Config,
        SHAPE
        | dict(num_key_value_heads=2, head_dim=12, query_pre_attn_scalar=20)
        | dict(sliding_window=18, attn_logit_softcapping=5.0, final_logit_softcapping=8.0),
    ),
    "gpt_neox": (
        transformers.GPTNeoXConfig,
        SHAPE
        | dict(rotary_pct=0.25, use_parallel_residual=True)
        | dict(hidden_dropout=0, attention_dropout=0),
    ),
}


# Families and rotary scalings that came later, in as few numbers as show what they differ by.
SMALL = SHAPE | dict(hidden_size=16, intermediate_size=24, num_key_value_heads=2)
YARN = dict(
    rope_type="yarn", rope_theta=5000.0, factor=4.0, original_max_position_embeddings=32, beta_fast=8.0
)
LOCAL_GLOBAL = dict(layer_types=["sliding_attention", "full_attention"])
LATER_FAMILIES = {
    "gemma3": (  # local layers rotate by their own base, global ones are stretched
        transformers.Gemma3TextConfig,
        SMALL
        | dict(head_dim=8, query_pre_attn_scalar=11, sliding_window=18, num_key_value_heads=1)
        | LOCAL_GLOBAL
        | dict(
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=50000.0, factor=2.0),
                sliding_attention=dict(rope_type="default", rope_theta=100.0),
            )
        ),
    ),
    "llama_yarn": (
        transformers.LlamaConfig,
        SMALL | dict(head_dim=12, tie_word_embeddings=True, rope_parameters=YARN),
    ),
    "llama_dynamic": (  # 16 positions before it grows
        transformers.LlamaConfig,
        SMALL
        | dict(head_dim=12, tie_word_embeddings=True, max_position_embeddings=16)
        | dict(rope_parameters=dict(rope_type="dynamic", rope_theta=5000.0, factor=8.0)),
    ),
    "phi3": (  # 6 of 8 numbers rotate; beyond 32 positions by the long factors
        transformers.Phi3Config,
        SMALL
        | dict(num_attention_heads=2, num_key_value_heads=1, original_max_position_embeddings=32)
        | dict(
            rope_parameters=dict(
                rope_type="longrope",
                rope_theta=5000.0,
                partial_rotary_factor=0.75,
                short_factor=[1.0, 1.25, 1.5],
                long_factor=[1.5, 2.5, 6.0],
            )
        ),
    ),
    "phi3_sliding": (
        transformers.Phi3Config,
        SMALL | dict(num_key_value_heads=4, sliding_window=18, tie_word_embeddings=True),
    ),
    "olmo3": (  # global layers are stretched, local ones not
        transformers.Olmo3Config,
        SMALL
        | dict(sliding_window=18)
        | LOCAL_GLOBAL
        | dict(
            rope_parameters=dict(
                full_attention=YARN, sliding_attention=dict(rope_type="default", rope_theta=5000.0)
            )
        ),
    ),
    "granite": (
        transformers.GraniteConfig,
        SMALL
        | dict(embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.4)
        | dict(logits_scaling=2.0, tie_word_embeddings=True),
    ),
    "smollm3": (transformers.SmolLM3Config, SMALL | dict(no_rope_layers=[1, 0])),
}


def make_model(config, seed: int, folder: Path):
    """Random weights, saved in float32; norms and biases away from their initial values."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed + 100)
    torch.set_default_dtype(torch.float32)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                parameter.add_(0.2 * noise)
    model.save_pretrained(folder)
    torch.set_default_dtype(torch.float64)
    forget_lengths(model)
    return model.double().eval()


def load_model(folder: Path):
    """The same from its folder; it computes in float64."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    )
    return model.double().eval()


def has_dynamic_rope(model) -> bool:
    return (getattr(model.config, "rope_parameters", None) or {}).get("rope_type") == "dynamic"


def forget_lengths(model):
    """Dynamic scaling of every pass as of a model's first: transformers keeps that of the longest."""

    def forget(rotary, args, kwargs):
        rotary.max_seq_len_cached = model.config.max_position_embeddings

    if has_dynamic_rope(model):
        model.model.rotary_emb.register_forward_pre_hook(forget, with_kwargs=True)


def freeze(model):
    for parameter in model.parameters():
        parameter.requires_grad_(False)


def attention_modules(model) -> list:
    endings = (".attn", ".self_attn", ".attention")
    return [module for name, module in model.named_modules() if name.endswith(endings)]


def allowed_pairs(model, layer: int, tokens: int) -> torch.Tensor:
    """The layer's own mask: causal, and the sliding window of layers that have one."""
    config = model.config
    allowed = ref.causal_mask(tokens)
    window = getattr(config, "sliding_window", None)
    types = getattr(config, "layer_types", None)
    always = config.model_type in ("mistral", "phi3")
    slides = types[layer] == "sliding_attention" if types else always
    return allowed & ref.local_mask(tokens, window - 1) if window and slides else allowed


def random_focus(model, cfg: FocusConfig, generator: torch.Generator) -> list:
    """Parameters of each layer; gradients are collected for w_g and centroids."""

    def normal(*shape, scale=1.0):
        return f32(torch.randn(*shape, generator=generator) * scale)

    hidden = model.config.hidden_size
    return [
        {
            "w_g": normal(hidden, cfg.routing_dim, scale=hidden**-0.5).requires_grad_(True),
            "centroids": normal(cfg.groups, cfg.routing_dim).requires_grad_(True),
            "carried": normal(cfg.groups, scale=0.3),
        }
        for _ in attention_modules(model)
    ]


def attach_focus(model, parameters: list, cfg: FocusConfig, top_k: int | None = None) -> list:
    """Focus in a model of transformers: hooks take each attention layer's input. Returns them."""

    def attention(module, query, key, value, mask, scaling=None, softcap=None, **_):
        allowed = allowed_pairs(model, module.focus_layer, query.shape[2])
        scale = scaling if scaling is not None else 1 / math.sqrt(query.shape[-1])
        out, _ = ref.attention(
            query,
            key,
            value,
            scale=scale,
            allowed=allowed,
            g=module.focus_groups,
            cfg=cfg,
            softcap=softcap,
            top_k=top_k,
        )
        return out.transpose(1, 2).contiguous(), None

    def route(module, args, kwargs):
        h = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        p = parameters[module.focus_layer]
        module.focus_groups = ref.assignments(h, p["w_g"], p["centroids"], cfg, p["carried"])

    AttentionInterface.register("focus_reference", attention)
    model.set_attn_implementation("focus_reference")
    hooks = []
    for layer, module in enumerate(attention_modules(model)):
        module.focus_layer = layer
        hooks.append(module.register_forward_pre_hook(route, with_kwargs=True))
    return hooks


def smallest_gap(model) -> float:
    """The least difference of two groups in a token's log-assignments, in the last pass."""
    gaps = []
    for module in attention_modules(model):
        ordered = torch.sort(torch.log(module.focus_groups.detach()), -1).values
        gaps.append(float(ordered.diff(dim=-1).min()))
    return min(gaps)
