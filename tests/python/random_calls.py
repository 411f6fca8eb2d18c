"""Calls the library as no program should, COUNT times: wrong handles, sizes, types, None, NaN. Each call must end with
a result or an exception: python3 random_calls.py [COUNT [SEED]]."""

import ctypes
import random
import sys

from tiny import GROUPS, TEXT, Small  # first: it ends where numpy is missing

import focus_attention
import numpy as np
from focus_attention import _library

count, seed = (int(word) for word in (sys.argv[1:] + ["100000", "1"][len(sys.argv) - 1:]))
source = random.Random(seed)
small = Small()
fitted = small.load()
fitted.fit(TEXT, progress=False, **GROUPS)
models = [small.load(), fitted, small.load()]
models[2].close()
ODD = [None, -1, 0, 1, 3, 2**31, 2**63, 2**64, -(2**70), 1.5, float("nan"), float("inf"), "", "a", "dense", "summary:1",
       "soft", "nonsense:::", "\0", "\ud800", "ä" * 50, TEXT[:200], b"bytes", [], [1], [1, 2, 3], [-1], [None], [[1]],
       ["a", "b"], {}, {"a": 1}, {"role": "user", "content": "x"}, [{"role": "user", "content": "x"}], object(), True,
       np.arange(5), np.zeros((2, 3)), np.array([1.0, np.nan]), np.array([7] * 600), np.array(3), small.text,
       small.folder, small.folder / "nowhere"]
KEYS = ["context", "stride", "max_tokens", "max_new_tokens", "temperature", "top_k", "top_p", "seed", "stop", "first",
        "logit_bias", "special", "progress", "num_groups", "tokens", "block", "against", "attentions", "nonsense"]
NAMES = ["encode", "decode", "chat_prompt", "logits", "hidden_states", "log_probs", "evaluate", "perplexity", "groups",
         "complete", "attach", "export", "cancel", "save_adapter"]
outcomes = {"result": 0, "error": 0}


def odd():
    return source.choice(ODD)


RIGHT = {"encode": "the fox", "decode": [1, 2, 3], "chat_prompt": [{"role": "user", "content": "x"}],
         "logits": [1, 2, 3], "hidden_states": (4, 5), "log_probs": np.arange(5), "evaluate": TEXT[:200],
         "perplexity": TEXT[:200], "groups": TEXT[:200], "complete": "the fox"}


def through_the_module():
    model = source.choice(models)
    if source.random() < 0.1:
        model.attention = odd()
        return
    name = source.choice(NAMES)
    given = [RIGHT[name]] if name in RIGHT and source.random() < 0.5 else [odd() for _ in range(source.choice([0, 1, 1, 1, 2]))]
    keywords = {source.choice(KEYS): odd() for _ in range(source.choice([0, 0, 1, 2]))}
    if name == "complete":  # a short one
        keywords.setdefault("max_new_tokens", 3)
        if isinstance(keywords["max_new_tokens"], int) and keywords["max_new_tokens"] > 3:
            keywords["max_new_tokens"] = 3
    if name in ("export", "save_adapter"):  # nothing outside the folder is written
        given = [small.folder / f"out{source.randrange(5)}.h5"]
    getattr(model, name)(*given, **keywords)


def past_the_module():
    """Handles that are numbers, sizes that do not fit NULL, results that go nowhere."""
    handle = ctypes.c_void_p(source.choice([None, 1, 16, source.randrange(2**20), source.randrange(2**64),
                                            models[0]._handle.value, models[1]._handle.value]))
    value = _library.Value()
    out = source.choice([value.out, None])
    ids = _library._Ids(None, source.choice([0, 1, 2**40]))
    text = source.choice([None, b"", b"{", b"[]", b"{\"context\": 1e400}", b"\xff\xfe", b"x" * 500])
    name, arguments = source.choice([
        ("model_info", (handle, out)), ("model_logits", (handle, ids, source.randrange(2**63), out)),
        ("model_decode", (handle, ids, out)), ("model_encode", (handle, None, source.choice([0, 1, 2**50]), 1, out)),
        ("model_set_attention", (handle, text)), ("model_chat", (handle, text, text, out)),
        ("value_array", (handle, source.choice([ctypes.byref(_library._Array()), None]))),
        ("value_text", (handle, None, None)), ("set_threads", (source.choice([-1, 2**31 - 1, 1]),)),
        ("model_evaluate", (handle, _library._Texts(None, source.randrange(3), None, source.randrange(3)), text,
                            _library._Callback(), None, out)),
        ("model_attach", (handle, text)), ("model_export", (handle, text, text)), ("model_open", (text, text, out)),
        ("train", (text, text or b"{\"steps\": -1}", text, _library._Callback(), None, out)), ("machine", (out,))])
    _library.call(name, *arguments)


for i in range(count):
    try:
        source.choice([through_the_module, past_the_module])()
        outcomes["result"] += 1
    except Exception as error:  # pylint: disable=broad-except
        outcomes["error"] += 1
        assert str(error) or isinstance(error, AssertionError), repr(error)
assert models[0].info.hidden_size == 32
focus_attention.set_threads(1)
print(f"{count} calls: {outcomes['result']} results, {outcomes['error']} errors")
