"""A language model whose attention is Focus's, for transformers (5 or newer).

`focus export BASE --adapter A --with-code --out DIR` writes this file beside the weights, and
`transformers.AutoModelForCausalLM.from_pretrained(DIR, trust_remote_code=True)` is then the sparse
model; without trust_remote_code it is the dense base. Which attention it is, is a word as the
program's --attention takes it: "dense", "local", "soft", "hard:2", "hard:k=2:gate=drop",
"summary:2", "summary:m=2:local_window=32:block=8". It stands in config.json as focus_attention, and
from_pretrained(DIR, trust_remote_code=True, focus_attention="hard:2") says another.

What is computed is the method, not its speed: every pair is scored and the mask is applied after,
in float32, so that a forward pass costs more than dense attention does. A cache holds all keys and
values that the family's own holds, and with groups of tokens their routing beside them; the groups'
sums are made anew for every token from all keys that it sees.
"""

import json

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.cache_utils import Cache, DynamicLayer
from transformers.conversion_mapping import (get_checkpoint_conversion_mapping,
                                             register_checkpoint_conversion_mapping)
from transformers.masking_utils import AttentionMaskInterface
from transformers.utils import cached_file

# What may follow a word, the first of them as a bare value too.
WORDS = {
    "dense": [],
    "local": [],
    "soft": ["balance", "sinks"],
    "hard": ["k", "gate", "balance", "sinks"],
    "summary": ["m", "selection", "selection_per", "head_budgets", "unselected_groups",
                "local_window", "block", "sinks", "width", "balance"],
}
NUMBERS = ("k", "m", "local_window", "block", "sinks")
SHARES = ("width",)
VALUES = {"balance": ("sequence", "carried", "none"), "gate": ("drop", "keep"),
          "selection": ("mass", "own"), "selection_per": ("query_head", "key_head"),
          "head_budgets": ("measured", "equal"), "unselected_groups": ("summary", "drop")}
HUB_WORDS = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder",
             "token")


def parse_attention(word):
    """("hard", {"k": 2}) of "hard:2" or "hard:k=2"."""
    kind, *parts = word.split(":")
    if kind not in WORDS:
        raise ValueError(f"focus_attention {word}: expected one of {', '.join(WORDS)}")
    said = {}
    for i, part in enumerate(parts):
        key, equals, value = part.partition("=")
        if not equals and i == 0 and WORDS[kind]:
            key, value = WORDS[kind][0], part
        if key not in WORDS[kind]:
            raise ValueError(f"focus_attention {word}: {kind} has no setting {key}")
        if key in NUMBERS and not value.isdecimal():
            raise ValueError(f"focus_attention {word}: {key} is a number, not {value}")
        if key in SHARES and not (value.replace(".", "", 1).isdecimal() and float(value) <= 1):
            raise ValueError(f"focus_attention {word}: {key} is from 0 to 1, not {value}")
        if key in VALUES and value not in VALUES[key]:
            raise ValueError(f"focus_attention {word}: {key} is one of {', '.join(VALUES[key])}")
        said[key] = int(value) if key in NUMBERS else float(value) if key in SHARES else value
    return kind, said


def resolve_attention(word, settings):
    """The kind of attention and all of its settings; what a word does not say is the Focus's."""
    kind, said = parse_attention(word or ("summary" if settings["training"] == "summary" else "soft"))
    groups, keys = settings["num_groups"], settings["grouping"] == "keys"
    if settings["grouping"] not in ("tokens", "keys"):
        raise ValueError(f"this code has groups of tokens and of keys, not {settings['grouping']}")
    summary = settings["summary"]
    tokens = settings.get("tokens", {"balance": "carried", "hard_gate": "keep"})
    if keys and kind in ("soft", "hard"):
        raise ValueError(f"focus_attention {word}: a Focus that groups keys supports only summary:M")
    full = {"balance": tokens["balance"], "k": 1, "gate": tokens["hard_gate"],
            "m": min(summary["num_selected_groups"], groups),
            "selection": "mass" if "m" in said else summary["selection"],
            "selection_per": summary["selection_per"],
            "head_budgets": settings["keys"]["head_budgets"] if keys else "equal",
            "unselected_groups": summary["unselected_groups"],
            "local_window": settings["local_window"], "block": summary["block"],
            "sinks": summary["sinks"] if kind == "summary" else tokens.get("sinks", 0),
            "width": summary["width"]} | said
    if full["k"] < 1 or max(full["k"], full["m"]) > groups or full["block"] < 1:
        raise ValueError(f"focus_attention {word}: k is from 1 to {groups}, m from 0 to {groups}, "
                         "block at least 1")
    if keys and full["selection"] == "own":
        raise ValueError(f"focus_attention {word}: selection own is for groups of tokens, not of keys")
    if not keys and kind in ("soft", "hard", "summary") and full["balance"] == "sequence":
        raise ValueError("balance sequence uses later tokens, so it cannot generate; "
                         f'set focus_attention="{kind}:balance=carried"')
    return kind, full


def head_budgets(needs, mean, most):
    """How many groups each query head of each layer selects [layers, heads]: in proportion to
    its need to the power of 0.35, at least 1 and at most `most`, `mean` or just below in the mean."""
    weights = needs.double() ** 0.35
    if not 0 < mean < most or weights.sum() == 0:
        return torch.full(needs.shape, mean, dtype=torch.long)

    def budgets(factor):  # a half is rounded up
        return (factor * weights + 0.5).floor().clamp(1, most).long()

    limit, low, high = mean * needs.numel(), 0.0, 1.0
    while budgets(high).sum() <= limit:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if budgets(middle).sum() <= limit else (low, middle)
    return budgets(low)


def capped(x, softcap):
    return softcap * torch.tanh(x / softcap) if softcap else x


class FocusLayer(torch.nn.Module):
    """What Focus does in one attention layer."""

    def __init__(self, settings, kind, attention, budgets, tensors, places):
        super().__init__()
        self.budgets = budgets  # m of each query head; None: attention["m"]
        self.settings, self.kind, self.attention = settings, kind, attention
        self.keys = settings["grouping"] == "keys"
        self.places = places  # layers of the model: behind them lies a cache's routing
        for name, tensor in tensors.items():
            # Not the checkpoint's: that is the base model, as without this code.
            self.register_buffer(name, tensor.float(), persistent=False)
        self.first, self.routing = 0, None

    def before(self, module, args, kwargs):
        """Sees what the layer's attention is called with: q, k and v are projections of h."""
        h = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        # By its type: its name is another in each family and in each version of transformers.
        cache = next((x for x in (*args, *kwargs.values()) if isinstance(x, Cache)), None)
        if cache is not None and cache.is_compileable:
            raise ValueError("Focus needs a cache that grows (DynamicCache), not a static one")
        self.first = cache.get_seq_length(module.layer_idx) if cache is not None else 0
        if self.keys or self.kind == "local":
            return
        # In double, as the program does: at a low temperature a rounding of the scores shows.
        scores = h.double() @ self.projection.double() @ self.centroids.double().T
        scores = scores / self.settings["tokens"]["temperature"]
        if self.attention["balance"] == "carried":
            scores = scores + self.potentials.double()
        self.routing = scores[:, None]  # [batch, 1, tokens, groups]: as a cache's keys are
        if cache is not None:
            place = self.places + module.layer_idx
            while len(cache.layers) <= place:
                cache.layers.append(DynamicLayer())
            self.routing = cache.layers[place].update(self.routing, self.routing[..., :0])[0]

    def forward(self, q, k, v, mask, scaling, softcap, sliding_window, dropout):
        """q [batch, heads, queries, dim]; k, v [batch, kv_heads, keys, dim]: with a cache's, or
        what a sliding window leaves of them. mask [batch, tokens], 0 for padding, or None."""
        shape, kept = q.shape, k.shape[2]
        i, j, seen = self.positions(shape[0], shape[2], kept, mask, q.device)
        if sliding_window:
            seen = seen & (i - j < sliding_window)
        # A token of the padding sees itself, so that nothing is divided by 0.
        seen = (seen | (i == j))[:, None]
        i, j = i[:, None], j[:, None]
        dtype, q, k, v = q.dtype, q.float(), k.float(), v.float()
        heads_per_key_head = shape[1] // k.shape[1]
        wide_k, wide_v = (x.repeat_interleave(heads_per_key_head, 1) for x in (k, v))
        q = q * (scaling if scaling is not None else shape[3] ** -0.5)
        raw = q @ wide_k.transpose(-1, -2)
        scores = capped(raw, softcap)
        if self.kind == "summary":
            weights = self.summary(raw, scores, q, k, i, j, seen, softcap, dropout)
        else:
            scores = self.gated(scores, i, j, seen, shape[2], kept)
            weights = torch.nn.functional.dropout(scores.softmax(-1), dropout)
        return (weights @ wide_v).to(dtype).transpose(1, 2).contiguous()

    def positions(self, batch, queries, kept, mask, device):
        """Positions of queries and keys, counted from each sequence's first token, and which keys
        a query sees. [batch, queries, 1], [batch, 1, keys], [batch, queries, keys]"""
        total = self.first + queries
        if kept > total:
            raise ValueError(f"Focus: {kept} keys for {total} tokens; unknown kind of cache")
        i = torch.arange(self.first, total, device=device)[None, :, None]
        j = torch.arange(total - kept, total, device=device)[None, None]
        if mask is None:
            return i, j, j <= i
        if mask.ndim != 2 or mask.shape[-1] != total:
            raise ValueError("Focus needs an attention_mask [batch, tokens], cached tokens included "
                             f"({total} here), not {list(mask.shape)}")
        mask = mask.bool()
        begins = torch.cat([mask[:, :1], mask[:, 1:] & ~mask[:, :-1]], 1)
        if (begins.sum(1) > 1).any():
            raise ValueError("Focus supports padding at the start or end of a sequence, not within it: "
                             "pad on the left to generate")
        start = begins.int().argmax(1)[:, None, None]
        return i - start, j - start, (j <= i) & mask[:, None, total - kept:]

    def gated(self, scores, i, j, seen, queries, kept):
        """Scores of soft, hard and local attention."""
        distant = seen & (i - j > self.settings["local_window"])
        if self.kind == "local":
            return scores.masked_fill(~seen | distant, -torch.inf)
        distant = distant & (j >= self.attention["sinks"])
        routing = self.routing[:, :, -kept:]
        if self.kind == "soft" or self.attention["gate"] == "keep":
            g = routing.softmax(-1).float()
            affinity = g[:, :, -queries:] @ g.transpose(-1, -2)
            if self.settings["tokens"]["gate"] == "logit":
                gate = torch.sigmoid(self.settings["tokens"]["gate_steepness"] * affinity)
                scores = torch.where(distant, scores * gate, scores)
            else:
                gate = torch.log(affinity + self.settings["tokens"]["affinity_floor"])
                scores = torch.where(distant, scores + gate, scores)
        if self.kind == "hard":
            # The k groups of highest g, the first of equals.
            order = routing.sort(dim=-1, descending=True, stable=True).indices
            sets = torch.zeros_like(routing, dtype=torch.float32)
            sets.scatter_(-1, order[..., : self.attention["k"]], 1.0)
            share = sets[:, :, -queries:] @ sets.transpose(-1, -2) > 0.5
            seen = seen & (share | ~distant)
        return scores.masked_fill(~seen, -torch.inf)

    def classes(self, k):
        """Each key's group [batch, kv_heads, keys]: the first of those with the largest score."""
        if not self.keys:
            return self.routing[:, :, -k.shape[2]:].argmax(-1).expand(-1, k.shape[1], -1)
        # -|k - C|^2 / 2 but for what all groups share, and each group's bias.
        z = k @ self.centroids.transpose(-1, -2) - self.centroids.square().sum(-1)[:, None] / 2
        return (z + self.bias[:, None]).argmax(-1)

    def widths(self, raw, q, k, far, members, n, softcap):
        """Half the variance of each group's scores."""
        k = k.repeat_interleave(raw.shape[1] // k.shape[1], 1)
        squared = q ** 2
        width = (squared @ (k ** 2).transpose(-1, -2) * far) @ members / n
        for d in range(q.shape[-1]):  # means are the groups' of each query
            mean = (far * k[..., d][:, :, None]) @ members / n
            width = width - squared[..., d, None] * mean ** 2
        width = width.clamp(min=0)
        if softcap:
            width = width * (1 - torch.tanh((raw * far) @ members / n / softcap) ** 2) ** 2
        return width / 2

    def summary(self, raw, scores, q, k, i, j, seen, softcap, dropout):
        """Weights of the keys where a group that a query does not read is one column: its score is
        that of the group's mean key, plus the logarithm of its size, its value the mean value."""
        settings, groups = self.attention, self.settings["num_groups"]
        batch, heads, queries, _ = raw.shape
        rep = heads // k.shape[1]
        near = seen & ((j >= i // settings["block"] * settings["block"] - settings["local_window"])
                       | (j < settings["sinks"]))
        far = (seen & ~near).float()
        classes = self.classes(k)
        members = torch.nn.functional.one_hot(classes, groups).float()
        members = members.repeat_interleave(rep, 1)  # [batch, heads, keys, groups]
        counted = far @ members  # of each query's far keys, how many are in each group
        some, n = counted > 0.5, counted.clamp(min=1)
        columns = capped((raw * far) @ members / n, softcap) + n.log()
        if self.keys:
            columns = columns + self.beta.repeat_interleave(rep, 0)[:, None]
        columns = columns.masked_fill(~some, -torch.inf)
        widths = 0.0
        if settings["width"] or hasattr(self, "summary_width"):
            widths = self.widths(raw, q, k, far, members, n, softcap)
        if settings["selection"] == "own":
            own = torch.nn.functional.one_hot(classes[..., -queries:], groups).bool()
            reads = own.repeat_interleave(rep, 1)
        else:
            # Those of largest estimated mass, of a query head or of all that share a key head.
            wide = columns + settings["width"] * widths
            estimate = torch.cat([scores.masked_fill(~near, -torch.inf), wide], -1)
            mass = (wide - estimate.logsumexp(-1, keepdim=True)).exp()
            together = rep if settings["selection_per"] == "key_head" else 1
            mass = mass.view(batch, heads // together, together, queries, groups).sum(2)
            empty = ~some[:, ::together]
            order = mass.masked_fill(empty, -1).sort(dim=-1, descending=True, stable=True).indices
            m = settings["m"] if self.budgets is None else self.budgets.to(q.device)[:, None, None]
            taken = (torch.arange(groups, device=q.device) < m).expand(order.shape)
            reads = torch.zeros_like(mass).scatter_(-1, order, taken.to(mass.dtype)).bool()
            reads = reads.repeat_interleave(together, 1)
        if hasattr(self, "summary_width"):
            columns = columns + self.summary_width[:, None, None] * widths
        exact = near | ((far > 0) & (reads.float() @ members.transpose(-1, -2) > 0.5))
        hidden = reads if settings["unselected_groups"] == "summary" else torch.ones_like(reads)
        every = torch.cat([scores.masked_fill(~exact, -torch.inf),
                           columns.masked_fill(hidden, -torch.inf)], -1)
        p = torch.nn.functional.dropout(every.softmax(-1), dropout)
        kept = k.shape[2]
        # A column's weight goes to its keys in equal parts: their values' mean.
        return p[..., :kept] + ((p[..., kept:] / n) @ members.transpose(-1, -2)) * far


def attend(module, query, key, value, attention_mask, scaling=None, dropout=0.0, softcap=None,
           sliding_window=None, **kwargs):
    """The attention function "focus" of transformers; each layer's own Focus hangs on its module."""
    if not hasattr(module, "focus"):
        raise ValueError('attention "focus" needs a model that this code has loaded with a Focus')
    return module.focus(query, key, value, attention_mask, scaling, softcap, sliding_window,
                        dropout), None


def padding(*args, attention_mask=None, **kwargs):
    """In place of a mask of pairs: what is padding [batch, tokens], or None where nothing is."""
    return attention_mask


def refuse_packed(model, args, kwargs):
    """Several sequences in a row are known by their positions alone; nothing here keeps them apart."""
    positions = kwargs.get("position_ids")
    if positions is None or kwargs.get("attention_mask") is not None:
        return
    if (positions.diff(dim=-1) != 1).any():
        raise ValueError("Focus takes one sequence in a row: these position_ids are of several")


transformers.AttentionInterface.register("focus", attend)
AttentionMaskInterface.register("focus", padding)


class FocusModel:
    """Put before a family's class, it loads that family's model and Focus onto it."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # Tensors whose names in files are not those in the class (GPT-NeoX's head): transformers
        # looks them up by the class's name, and for code of others not at all.
        renamings = get_checkpoint_conversion_mapping(cls.__name__.removeprefix("Focus"))
        if renamings is not None:
            register_checkpoint_conversion_mapping(cls.__name__, renamings, overwrite=True)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        loaded = super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        hub = {word: kwargs[word] for word in HUB_WORDS if word in kwargs}
        files = [cached_file(pretrained_model_name_or_path, name, **hub)
                 for name in ("focus_config.json", "focus_model.safetensors")]
        with open(files[0], encoding="utf-8") as file:
            model.add_focus(json.load(file), load_file(files[1]))
        return loaded

    def add_focus(self, settings, tensors):
        """Focus in the place of the attention; what focus_config.json and focus_model.safetensors
        hold."""
        kind, attention = resolve_attention(getattr(self.config, "focus_attention", None), settings)
        self.focus_files = settings, tensors
        if kind == "dense":
            return
        layers = settings["num_hidden_layers"]
        modules = [module for name, module in self.named_modules()
                   if name.endswith((".self_attn", ".attn", ".attention"))]
        if len(modules) != layers:
            raise ValueError(f"a Focus for {layers} layers, but the model has {len(modules)}")
        budgets = [None] * layers
        if (kind, attention["selection"], attention["selection_per"], attention["head_budgets"]) == (
                "summary", "mass", "query_head", "measured"):
            needs = torch.stack([tensors[f"layers.{i}.needs"] for i in range(layers)])
            budgets = head_budgets(needs, attention["m"], settings["num_groups"])
        for module in modules:
            start = f"layers.{module.layer_idx}."
            own = {name[len(start):]: t for name, t in tensors.items() if name.startswith(start)}
            module.focus = FocusLayer(settings, kind, attention, budgets[module.layer_idx], own,
                                      layers)
            module.focus.to(next(module.parameters()).device)
            module.register_forward_pre_hook(module.focus.before, with_kwargs=True)
        self.register_forward_pre_hook(refuse_packed, with_kwargs=True)
        self.set_attn_implementation("focus")

    def save_pretrained(self, save_directory, *args, **kwargs):
        super().save_pretrained(save_directory, *args, **kwargs)
        if not hasattr(self, "focus_files"):
            return
        settings, tensors = self.focus_files
        with open(f"{save_directory}/focus_config.json", "w", encoding="utf-8") as file:
            json.dump(settings, file, indent=2)
        save_file(tensors, f"{save_directory}/focus_model.safetensors", {"format": "pt"})


class FocusGPT2LMHeadModel(FocusModel, transformers.GPT2LMHeadModel):
    pass


class FocusLlamaForCausalLM(FocusModel, transformers.LlamaForCausalLM):
    pass


class FocusMistralForCausalLM(FocusModel, transformers.MistralForCausalLM):
    pass


class FocusQwen2ForCausalLM(FocusModel, transformers.Qwen2ForCausalLM):
    pass


class FocusQwen3ForCausalLM(FocusModel, transformers.Qwen3ForCausalLM):
    pass


class FocusOlmo2ForCausalLM(FocusModel, transformers.Olmo2ForCausalLM):
    pass


class FocusGemma2ForCausalLM(FocusModel, transformers.Gemma2ForCausalLM):
    pass


class FocusGemma3ForCausalLM(FocusModel, transformers.Gemma3ForCausalLM):
    pass


class FocusGPTNeoXForCausalLM(FocusModel, transformers.GPTNeoXForCausalLM):
    pass


class FocusPhi3ForCausalLM(FocusModel, transformers.Phi3ForCausalLM):
    pass


class FocusOlmo3ForCausalLM(FocusModel, transformers.Olmo3ForCausalLM):
    pass


class FocusGraniteForCausalLM(FocusModel, transformers.GraniteForCausalLM):
    pass


class FocusSmolLM3ForCausalLM(FocusModel, transformers.SmolLM3ForCausalLM):
    pass
