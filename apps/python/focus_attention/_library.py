"""libfocus by ctypes: statuses become exceptions, values become texts and arrays."""

import ctypes
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union

import numpy as np
import numpy.typing as npt

Text = Union[str, "os.PathLike[str]"]
Texts = Union[Text, Iterable[Text]]
Ids = Union[Sequence[int], "npt.NDArray[Any]"]

log = logging.getLogger("focus_attention")


class FocusError(RuntimeError):
    """What the library refuses, in its line."""


class Stopped(FocusError):
    """Another thread, or a callback, has ended the call."""


class _Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 2), ("rank", ctypes.c_int32),
                ("dtype", ctypes.c_int32)]


class _Texts(ctypes.Structure):
    _fields_ = [("files", ctypes.POINTER(ctypes.c_char_p)), ("num_files", ctypes.c_size_t),
                ("documents", ctypes.POINTER(ctypes.c_char_p)), ("num_documents", ctypes.c_size_t)]


class _Ids(ctypes.Structure):
    _fields_ = [("data", ctypes.POINTER(ctypes.c_int32)), ("size", ctypes.c_size_t)]


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_P, _S, _N = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t
_OUT, _WORK = ctypes.POINTER(ctypes.c_void_p), [_Callback, _P, ctypes.POINTER(ctypes.c_void_p)]
_ARGUMENTS = {
    "set_threads": [ctypes.c_int32], "set_notices": [_Callback, _P], "machine": [_OUT],
    "value_text": [_P, ctypes.POINTER(_S), ctypes.POINTER(_N)],
    "value_array": [_P, ctypes.POINTER(_Array)], "value_free": [_P],
    "model_open": [_S, _S, _OUT], "model_close": [_P], "model_cancel": [_P], "model_info": [_P, _OUT],
    "model_attach": [_P, _S], "model_detach": [_P], "model_set_attention": [_P, _S],
    "model_encode": [_P, _S, _N, ctypes.c_int32, _OUT], "model_decode": [_P, _Ids, _OUT],
    "model_chat": [_P, _S, _S, _OUT], "model_logits": [_P, _Ids, _N, _OUT],
    "model_hidden_states": [_P, _Ids, _N, _OUT], "model_log_probs": [_P, _Ids, _OUT],
    "model_evaluate": [_P, _Texts, _S, *_WORK], "model_generate": [_P, _Ids, _S, *_WORK],
    "model_fit": [_P, _Texts, _S, *_WORK], "model_groups": [_P, _Texts, _S, *_WORK],
    "model_score": [_P, _S, _S, *_WORK],
    "model_save_adapter": [_P, _S], "model_export": [_P, _S, _S], "train": [_S, _S, _S, *_WORK],
}


def _load() -> ctypes.CDLL:
    # libgomp's threads would spin at every barrier, beside whatever else the machine does.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    path = os.environ.get("FOCUS_LIBRARY") or str(Path(__file__).with_name("libfocus.so"))
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        hint = ("focus_attention needs an x86-64-v2 processor (SSE4.2)" if "ISA level" in str(error) else
                "FOCUS_LIBRARY names the library where it is elsewhere")
        raise ImportError(f"{error}; {hint}") from None
    for name, arguments in _ARGUMENTS.items():
        getattr(library, "focus_" + name).argtypes = arguments
    library.focus_version.restype = library.focus_error.restype = ctypes.c_char_p
    return library


_library = _load()


def call(name: str, *arguments: Any) -> None:
    """focus_NAME(...). Raises FocusError where it fails."""
    status = getattr(_library, "focus_" + name)(*arguments)
    if status:
        message = _library.focus_error().decode()
        raise Stopped(message) if status == 2 else FocusError(message)


class Value:
    """A result of the library, freed with the last array that shows it."""

    def __init__(self) -> None:
        self._handle = ctypes.c_void_p()
        self.out = ctypes.byref(self._handle)

    def __del__(self) -> None:
        if self._handle:
            _library.focus_value_free(self._handle)

    def text(self) -> str:
        text, size = ctypes.c_char_p(), ctypes.c_size_t()
        call("value_text", self._handle, ctypes.byref(text), ctypes.byref(size))
        return ctypes.string_at(text, size.value).decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.text())

    def array(self) -> "npt.NDArray[Any]":
        """The numbers where the library has them."""
        array = _Array()
        call("value_array", self._handle, ctypes.byref(array))
        shape, kind = tuple(array.shape[:array.rank]), ("<i4", "<f4", "<f8")[array.dtype]
        if not array.data or 0 in shape:
            return np.empty(shape, kind)
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": kind, "data": (array.data, False)}
        return np.asarray(self)


def bytes_of(text: Text, what: str = "text") -> bytes:
    data = os.fspath(text).encode("utf-8") if isinstance(text, (str, os.PathLike)) else None
    if data is None:
        raise TypeError(f"{what}: expected a str or a path, got {type(text).__name__}")
    if b"\0" in data:
        raise ValueError(f"{what}: it has a zero byte")
    return data


def _plain(value: Any) -> Any:
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"settings: {type(value).__name__} has no place in them")


def settings_of(settings: Mapping[str, Any]) -> bytes:
    given = {key: value for key, value in settings.items() if value is not None}
    return bytes_of(json.dumps(given, ensure_ascii=False, allow_nan=False, default=_plain), "settings")


def texts_of(texts: Texts) -> _Texts:
    """A str is a document in memory, a path is a file or a folder of files."""
    several = [texts] if isinstance(texts, (str, os.PathLike)) else list(texts)
    files = [bytes_of(text, "texts") for text in several if isinstance(text, os.PathLike)]
    documents = [bytes_of(text, "texts") for text in several if not isinstance(text, os.PathLike)]
    return _Texts((ctypes.c_char_p * len(files))(*files), len(files),
                  (ctypes.c_char_p * len(documents))(*documents), len(documents))


def ids_of(ids: Ids) -> _Ids:
    array = np.ascontiguousarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError(f"ids: expected whole numbers in one dimension, got {array.dtype} {array.shape}")
    if array.size and (array.min() < 0 or array.max() > 2**31 - 1):
        raise ValueError("ids: expected numbers from 0 to 2^31 - 1")
    array = array.astype(np.int32, copy=False)
    given = _Ids(array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)), array.size)
    given._array = array
    return given


def size_of(first: int) -> int:
    if not 0 <= first < 2**63:
        raise ValueError(f"first: expected a number from 0 on, got {first}")
    return int(first)


class Progress:
    """One line on stderr, where that is a terminal or a notebook's."""

    def __init__(self, show: Optional[bool]) -> None:
        self.show = (sys.stderr.isatty() or "ipykernel" in sys.modules) if show is None else show
        self.begun, self.shown = time.monotonic(), 0.0

    def __call__(self, share: float, what: str) -> None:
        now = time.monotonic()
        if not self.show or (now - self.shown < 0.2 and share < 1):
            return
        left = f"{(now - self.begun) * (1 - share) / share:.0f} s left" if share > 0 else ""
        print(f"\r{what} {100 * share:3.0f} % {left:16}", end="" if share < 1 else "\n", file=sys.stderr, flush=True)
        self.shown = now


class Callback:
    """Calls f with each text; what it raises, Ctrl-C too, ends the work and is raised behind it."""

    def __init__(self, f: Callable[[str], Optional[bool]]) -> None:
        self.raised: Optional[BaseException] = None

        def call_it(text: bytes, _: Any) -> int:
            try:
                return int(bool(f(text.decode("utf-8", "replace"))))
            except BaseException as error:  # pylint: disable=broad-except
                self.raised = error
                return 1

        self.c = _Callback(call_it)

    def run(self, name: str, *arguments: Any) -> Value:
        value = Value()
        try:
            call(name, *arguments, self.c, None, value.out)
        except Stopped:
            if self.raised is None:
                raise
        if self.raised is not None:
            raise self.raised
        return value


def _log(line: bytes, _: Any) -> int:
    log.warning("%s", line.decode("utf-8", "replace"))
    return 0


_notices = _Callback(_log)
call("set_notices", _notices, None)
VERSION: str = _library.focus_version().decode()
