"""Soft Focus in transformers, for the affinity gate and carried potentials, on an adapter that `focus export` wrote.
`bash tests/interop/run.sh` runs this and compares it with `focus logits`.

  groups = add_focus(model, "ADAPTER")
"""

import json, torch, transformers
from safetensors.torch import load_file

def add_focus(model, folder):
    """Soft Focus on a model without soft-cap or sliding window; returns the groups of the last pass."""
    config = json.load(open(f"{folder}/focus_config.json"))
    focus, groups = load_file(f"{folder}/focus_model.safetensors"), {}
    def route(module, args, kwargs):  # h: what q, k and v are projected from
        h, i = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0], module.layer_idx
        scores = h @ focus[f"layers.{i}.projection"] @ focus[f"layers.{i}.centroids"].T
        groups[i] = (scores / config["tokens"]["temperature"] + focus[f"layers.{i}.potentials"]).softmax(-1)
    def attend(module, q, k, v, mask, scaling=None, **kwargs):
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        g, t = groups[module.layer_idx], torch.arange(q.shape[2])
        affinity = (g @ g.transpose(-1, -2) + config["tokens"]["affinity_floor"]).log()
        distance = t[:, None] - t  # of each pair; near ones are attended as always, and so are first tokens
        far = (distance > config["local_window"]) & (t >= config["tokens"].get("sinks", 0))
        bias = torch.where(far, affinity, 0).masked_fill(distance < 0, -torch.inf)
        p = (q @ k.transpose(-1, -2) * (scaling or q.shape[-1] ** -0.5) + bias[:, None]).softmax(-1)
        return (p @ v).transpose(1, 2).contiguous(), p
    transformers.AttentionInterface.register("focus", attend)
    model.set_attn_implementation("focus")
    for name, module in model.named_modules():
        if name.endswith((".self_attn", ".attn", ".attention")):
            module.register_forward_pre_hook(route, with_kwargs=True)
    return groups
