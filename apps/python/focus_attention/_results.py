"""What calls come to: dataclasses with the names of the program's JSON files."""

import dataclasses
import html
import json
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Type, TypeVar

R = TypeVar("R", bound="Result")


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """Fields that programs need; to_dict() has all that the library says."""

    raw: Mapping[str, Any]

    @classmethod
    def of(cls: Type[R], raw: Mapping[str, Any]) -> R:
        names = [field.name for field in dataclasses.fields(cls) if field.name != "raw"]
        return cls(raw, **{name: raw.get(name) for name in names})

    def to_dict(self) -> Dict[str, Any]:
        return dict(self.raw)

    def shown(self) -> Dict[str, str]:
        """The fields that are short and not None."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "raw"}
        return {name: f"{value:.6g}" if isinstance(value, float) else str(value)
                for name, value in fields.items() if value is not None and not isinstance(value, (list, dict))}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self.shown().items())})"

    def _repr_html_(self) -> str:
        return _table([[name, value] for name, value in self.shown().items()])


def _table(rows: Iterable[Iterable[str]]) -> str:
    cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


@dataclasses.dataclass(frozen=True, repr=False)
class ModelInfo(Result):
    model_type: str
    parameters: int
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    precision: str
    tokenizer: Optional[str]
    bos_token_id: Optional[int]
    eos_token_ids: List[int]
    chat_template: bool
    adapters: List[Dict[str, Any]]
    attention: str


@dataclasses.dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """One attention on some texts. `pairs_attended` is its density, a share of the causal pairs; kl is
    KL(dense || attention) in nats, where `against` was given."""

    attention: str
    perplexity: float
    nats_per_token: float
    bits_per_byte: float
    tokens_scored: int
    pairs_attended: float
    pairs_choosing: float
    kl: Optional[float]
    nats_against_dense: Optional[float]
    nats_against_dense_error: Optional[float]
    tokens_per_second: Optional[float]

    def __float__(self) -> float:
        return self.perplexity


class Evaluations(List[Evaluation]):
    """Several attentions on the same tokens."""

    def to_dict(self) -> List[Dict[str, Any]]:
        return [row.to_dict() for row in self]

    def _repr_html_(self) -> str:
        names = ["attention", "pairs_attended", "perplexity", "kl", "nats_against_dense"]
        return _table([names, *([row.shown().get(name, "-") for name in names] for row in self)])

    def plot(self, axes: Any = None) -> Any:
        """Perplexity against density, by matplotlib."""
        axes = axes or _new_axes()
        axes.plot([100 * row.pairs_attended for row in self], [row.perplexity for row in self], "o")
        for row in self:
            axes.annotate(row.attention, (100 * row.pairs_attended, row.perplexity), xytext=(0, 5), fontsize=8,
                          textcoords="offset points", ha="right" if row.pairs_attended > 0.5 else "left")
        axes.set(xlabel="density, % of the causal pairs", ylabel="perplexity")
        return axes


@dataclasses.dataclass(frozen=True, repr=False)
class Generation(Result):
    text: str
    ids: List[int]
    stop: str
    attention: str
    prompt_tokens: int
    reused_tokens: int
    prefill_tokens_per_second: float
    decode_tokens_per_second: float
    keys_read: Optional[float]
    cache_type: Optional[str]
    cache_bytes: Optional[int]
    logprobs: List[Dict[str, Any]]

    def __str__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True, repr=False)
class Fit(Result):
    """Groups that were fitted: K, m, w, B and s of docs/method.md. `tried`: what they were chosen from, where a
    target or a density was given; `reached`: whether it was."""

    num_groups: int
    num_selected_groups: int
    local_window: int
    block: int
    sinks: int
    context: int
    tokens: int
    reached: Optional[bool]
    tried: Optional[List[Dict[str, Any]]]


@dataclasses.dataclass(frozen=True, repr=False)
class Groups(Result):
    """What is in the groups of a text: groups.json of focus groups."""

    grouping: str
    context: int
    tokens: int
    layers: int
    heads: int
    num_groups: int
    pairs_attended: Optional[float]
    groupings: List[Dict[str, Any]]
    passage: Dict[str, Any]

    def plot(self, axes: Any = None) -> Any:
        """The groups of a passage, a row for each grouping, by matplotlib."""
        axes = axes or _new_axes()
        tokens = self.passage["tokens"]
        axes.imshow([[token["groups"][i] for token in tokens] for i in range(len(self.groupings))], aspect="auto",
                    interpolation="nearest", cmap="tab20")
        axes.set(xlabel="token of the passage", ylabel="layer and head")
        return axes


@dataclasses.dataclass(frozen=True, repr=False)
class TrainingResult(Result):
    finished: bool
    step: int
    ended_early: bool
    trainable: int
    artifact: str
    best: str
    valid_loss_start: Optional[float]
    valid_loss: Optional[float]
    valid_loss_best: Optional[float]
    tokens: int
    tokens_per_second: float

    def metrics(self) -> List[Dict[str, Any]]:
        """The records of metrics.jsonl, of a finished run."""
        lines = Path(self.artifact).with_name("metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def plot(self, axes: Any = None) -> Any:
        """Losses over steps, by matplotlib."""
        axes = axes or _new_axes()
        for name in ("loss", "valid_loss"):
            points = [(record["step"], record[name]) for record in self.metrics() if name in record]
            if points:
                axes.plot(*zip(*points), label=name)
        axes.set(xlabel="step", ylabel="nats per token")
        axes.legend()
        return axes


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ImportError("plot() draws with matplotlib: pip install matplotlib") from None
    return pyplot.subplots()[1]
