"""Train and run sparse attention on a CPU: `model = focus_attention.load("m.gguf")`.

A model has an attention (`model.attention = "summary:8"`), by which all its calls attend. Texts are given as str, in
memory, or as paths. Settings have the names of the program's options and config keys. What the library refuses is a
FocusError with the program's line; Ctrl-C ends long work cleanly."""

import ctypes as _ctypes
import json
import os
import queue
import threading
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt

from ._library import (VERSION, Callback, FocusError, Ids, Progress, Stopped, Text, Texts, Value, bytes_of, call, ids_of,
                       settings_of, size_of, texts_of)
from ._results import Evaluation, Evaluations, Fit, Generation, Groups, ModelInfo, Result, TrainingResult

__version__ = VERSION
__all__ = ["Evaluation", "Evaluations", "Fit", "FocusError", "Generation", "Groups", "Model", "ModelInfo", "Result",
           "Stopped", "TextStream", "TrainingResult", "load", "machine", "set_threads", "train"]

Messages = Sequence[Mapping[str, Any]]


def set_threads(threads: int) -> None:
    """Threads of later calls; 0: all of the machine."""
    call("set_threads", threads)


def machine() -> Dict[str, Any]:
    """Version, kernels of this processor, threads, bytes of tensors."""
    value = Value()
    call("machine", value.out)
    return dict(value.json())


def load(path: Text, *, adapters: Union[Text, Sequence[Text]] = (), tokenizer: Optional[Text] = None,
         bos: Optional[str] = None, precision: Optional[str] = None) -> "Model":
    """A Hugging Face folder, a GGUF file or a checkpoint file (.h5), with adapters on it. precision: float32, bf16 or q8;
    by default q8 where matrices are stored in GGML blocks, else float32."""
    several = [adapters] if isinstance(adapters, (str, os.PathLike)) else list(adapters)
    handle = _ctypes.c_void_p()
    call("model_open", bytes_of(path, "path"),
         settings_of({"adapters": several, "tokenizer": tokenizer, "bos": bos, "precision": precision}),
         _ctypes.byref(handle))
    return Model(handle)


class Model:
    """A model, its adapters and its attention. Threads may share it: its calls wait for each other."""

    def __init__(self, handle: "_ctypes.c_void_p") -> None:
        self._handle = handle

    def close(self) -> None:
        """Gives its memory back; later calls raise. At the end of the object it happens by itself."""
        handle, self._handle = self._handle, _ctypes.c_void_p()
        if handle:
            call("model_close", handle)

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()

    def __repr__(self) -> str:
        return f"<focus_attention.Model {self.info.raw['where']}>" if self._handle else "<focus_attention.Model, closed>"

    def _value(self, name: str, *arguments: Any) -> Value:
        value = Value()
        call("model_" + name, self._handle, *arguments, value.out)
        return value

    def _work(self, name: str, progress: Optional[bool], *arguments: Any) -> Value:
        bar = Progress(progress)

        def tell(text: str) -> None:
            event = json.loads(text)
            bar(event["share"], event["work"])

        return Callback(tell).run("model_" + name, self._handle, *arguments)

    @property
    def info(self) -> ModelInfo:
        return ModelInfo.of(self._value("info").json())

    @property
    def attention(self) -> str:
        """How all calls attend: "dense", "summary:8", "hard:2" (focus eval --help); "": the model's own."""
        return self.info.attention

    @attention.setter
    def attention(self, attention: str) -> None:
        call("model_set_attention", self._handle, bytes_of(attention, "attention"))

    def attach(self, path: Text) -> None:
        """Adds an adapter: focus.h5, lora.h5, a run's folder, a PEFT folder or a GGUF LoRA."""
        call("model_attach", self._handle, bytes_of(path, "path"))

    def detach(self) -> None:
        """Takes every adapter off."""
        call("model_detach", self._handle)

    def cancel(self) -> None:
        """Ends the call that runs on it in another thread, which raises Stopped."""
        call("model_cancel", self._handle)

    def encode(self, text: str, *, special: bool = False) -> "npt.NDArray[np.int32]":
        """Token ids; special: with the special tokens that precede a prompt."""
        if not isinstance(text, str):
            raise TypeError(f"text: expected a str, got {type(text).__name__}")
        data = text.encode("utf-8")
        return self._value("encode", data, len(data), int(special)).array()

    def decode(self, ids: Ids) -> str:
        return self._value("decode", ids_of(ids)).text()

    def chat_prompt(self, messages: Messages, **variables: Any) -> str:
        """A conversation by the model's chat template, up to where the assistant's turn begins."""
        return self._value("chat", bytes_of(json.dumps(list(messages), ensure_ascii=False), "messages"),
                           settings_of(variables)).text()

    def logits(self, ids: Ids, *, first: int = 0) -> "npt.NDArray[np.float32]":
        """Next-token logits [tokens - first, vocab_size] of the tokens from `first` on."""
        return self._value("logits", ids_of(ids), size_of(first)).array()

    def hidden_states(self, ids: Ids, *, first: int = 0) -> "npt.NDArray[np.float32]":
        """After the last norm [tokens - first, hidden_size]."""
        return self._value("hidden_states", ids_of(ids), size_of(first)).array()

    def log_probs(self, ids: Ids) -> "npt.NDArray[np.float64]":
        """Nats of every token but the first, given those before it [tokens - 1]."""
        return self._value("log_probs", ids_of(ids)).array()

    def evaluate(self, texts: Texts, attentions: Union[str, Sequence[str]] = (), *, progress: Optional[bool] = None,
                 **settings: Any) -> Evaluations:
        """Perplexity by attention, a row each (default: the model's attention). Settings of focus eval: context,
        stride, against, max_tokens, separator, ..."""
        words = [attentions] if isinstance(attentions, str) else list(attentions)
        done = self._work("evaluate", progress, texts_of(texts), settings_of({**settings, "attentions": words}))
        return Evaluations(Evaluation.of(row) for row in done.json()["rows"])

    def perplexity(self, texts: Texts, *, progress: Optional[bool] = None, **settings: Any) -> Evaluation:
        """The same by the model's attention alone; float() of it is the perplexity."""
        return self.evaluate(texts, progress=progress, **settings)[0]

    def fit(self, texts: Texts, *, progress: Optional[bool] = None, **settings: Any) -> Fit:
        """Groups each head's keys by k-means, without training, and attends by the groups from then on. Settings of
        focus fit: num_groups, num_selected_groups, context, tokens, or target=0.005 or density=0.12."""
        return Fit.of(self._work("fit", progress, texts_of(texts), settings_of(settings)).json())

    def groups(self, texts: Texts, *, progress: Optional[bool] = None, **settings: Any) -> Groups:
        """What is in the groups of a text. Settings: context, max_tokens."""
        return Groups.of(self._work("groups", progress, texts_of(texts), settings_of(settings)).json())

    def score(self, requests: Iterable[Mapping[str, Any]], *, progress: Optional[bool] = None,
              **settings: Any) -> List[Dict[str, Any]]:
        """Answers to requests of the lm-evaluation-harness, those of focus score: {"type": "loglikelihood", "context",
        "continuation"}, ... Settings: start, max_length, chat."""
        lines = "".join(json.dumps(request, ensure_ascii=False) + "\n" for request in requests)
        answers = self._work("score", progress, bytes_of(lines, "requests"), settings_of(settings))
        return [json.loads(line) for line in answers.text().splitlines()]

    def _prompt_ids(self, prompt: Union[str, Ids, Messages]) -> Any:
        if isinstance(prompt, str):
            return self.encode(prompt, special=True)
        several: Any = prompt
        if len(several) and isinstance(several[0], Mapping):
            return self.encode(self.chat_prompt(several))
        return several

    def generate(self, prompt: Union[str, Ids, Messages], **settings: Any) -> "TextStream":
        """Goes on with a text, ids or a conversation: an iterator over the text's pieces, whose result is the whole.
        Settings: max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, stop, logit_bias,
        top_logprobs, cache_type, speculate, prompt_cache; by default those of the model's generation_config.json."""
        bias = settings.pop("logit_bias", None)
        if bias:
            settings["logit_bias"] = [f"{token}={number!r}" for token, number in dict(bias).items()]
        if isinstance(settings.get("stop"), str):
            settings["stop"] = [settings["stop"]]
        return TextStream(self, self._prompt_ids(prompt), settings_of(settings))

    def complete(self, prompt: Union[str, Ids, Messages], **settings: Any) -> Generation:
        """The same, once all is there."""
        return self.generate(prompt, **settings).result()

    def save_adapter(self, path: Text) -> None:
        """Writes the adapters that are on the model as one file (.h5)."""
        call("model_save_adapter", self._handle, bytes_of(path, "path"))

    def export(self, path: Text, **settings: Any) -> None:
        """Writes for others. format: adapter (PEFT's folder, or the groups), model (a Hugging Face folder) or gguf;
        dtype, with_code, overwrite."""
        call("model_export", self._handle, bytes_of(path, "path"), settings_of(settings))


class _Text(threading.Thread):
    """Makes a text, whose pieces others take meanwhile; None is behind the last."""

    def __init__(self, model: Model, ids: Any, settings: bytes) -> None:
        super().__init__(daemon=True)
        self.pieces: "queue.SimpleQueue[Optional[str]]" = queue.SimpleQueue()
        self.stop, self.made, self.error = False, None, None  # type: bool, Any, Optional[BaseException]
        self._arguments = (model._handle, ids_of(ids), settings)

    def run(self) -> None:
        def tell(piece: str) -> bool:
            if piece:
                self.pieces.put(piece)
            return self.stop

        try:
            self.made = Callback(tell).run("model_generate", *self._arguments).json()
        except BaseException as error:  # raised in the thread that asks
            self.error = error
        self.pieces.put(None)


class TextStream(Iterator[str]):
    """Pieces of a text as they come. Who leaves the loop, or presses Ctrl-C, ends the text."""

    def __init__(self, model: Model, ids: Any, settings: bytes) -> None:
        self._model, self._text = model, _Text(model, ids, settings)
        self._text.start()

    def __next__(self) -> str:
        try:
            piece = self._text.pieces.get()
        except BaseException:
            self.close()
            raise
        if piece is not None:
            return piece
        self._text.pieces.put(None)
        if self._text.error is not None:
            raise self._text.error
        raise StopIteration

    def result(self) -> Generation:
        """The whole, once it has ended."""
        for _ in self:
            pass
        return Generation.of(self._text.made)

    def close(self) -> None:
        """Ends the text before its next token."""
        self._text.stop = True
        self._text.join()

    def __del__(self) -> None:
        self._text.stop = True


def train(config: Optional[Text] = None, *, resume: bool = False, overwrite: bool = False,
          stop_at: Optional[int] = None, progress: Optional[bool] = None,
          callback: Optional[Callable[[Dict[str, Any]], Optional[bool]]] = None, **settings: Any) -> TrainingResult:
    """A run of focus train in its folder (out=...): train(base="m.gguf", method="lora", lora={"r": 8},
    data={"train": ["a.txt"]}, out="out/lora"). Keys go before those of a config file. The callback gets an event for
    each step and validation; True from it, or Ctrl-C, ends the run with a checkpoint, which resume=True continues."""
    bar = Progress(progress)

    def tell(text: str) -> Optional[bool]:
        event = json.loads(text)
        if event["event"] == "step":
            bar(event["step"] / event["steps"], f"train, loss {event['loss']:.4f},")
        return callback(event) if callback is not None else None

    done = Callback(tell).run("train", bytes_of(config, "config") if config is not None else None,
                              settings_of(settings),
                              settings_of({"resume": resume, "overwrite": overwrite, "stop_at": stop_at}))
    return TrainingResult.of(done.json())
