"""What is compared with what: the rows of each group that bench/run.sh takes."""

import functools

import text_rows
from comparison import Row, kernel, program_step, torch_peer


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
            for form in ("q8", "bf16", "float32")
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

    def lora(name, *arguments):
        return torch_peer(name, settings, "lora_step.py", "--T", str(seq_len), *arguments)

    title = f"retrofit step, GPT-2 124M, batch 1, T={seq_len}"
    yield Row(
        "step",
        f"{title}, fp32",
        [
            program_step("focus", settings, ours),
            naive("PyTorch eager, logit gate", "--gate", "logit"),
            naive("PyTorch eager, affinity gate"),
            naive("torch.compile, affinity gate", "--compile"),
            lora("PEFT LoRA r=4, fp32"),
            lora("PEFT LoRA r=4, bf16", "--dtype", "bf16"),
        ],
    )
    yield Row(
        "step",
        f"{title}, bf16",
        [
            program_step("focus, precision: bf16", settings, [*ours, "precision=bf16"]),
            naive("PyTorch eager, affinity gate, bf16", "--dtype", "bf16"),
            naive("torch.compile, affinity gate, bf16", "--compile", "--dtype", "bf16"),
            lora("PEFT LoRA r=4, bf16", "--dtype", "bf16"),
        ],
    )


def step_smollm2_rows(settings):
    """A model with many thin layers, shared key heads and a gated MLP; random weights."""
    seq_len = 128 if settings.quick else 1024
    ours = [f"data.context={seq_len}", "data.batch=1", "focus.num_groups=8"]
    ours += ["focus.local_window=128", "--vocab-size", "49152", "model.hidden_size=576"]
    ours += ["model.intermediate_size=1536", "model.num_hidden_layers=30"]
    ours += ["model.num_attention_heads=9", "model.num_key_value_heads=3"]

    def lora(name, *arguments):
        script = ("lora_step.py", "--model", "smollm2", "--T", str(seq_len))
        return torch_peer(name, settings, *script, *arguments)

    for dtype, precision in (("fp32", "float32"), ("bf16", "bf16")):
        yield Row(
            "step_smollm2",
            f"retrofit step, SmolLM2-135M, batch 1, T={seq_len}, {dtype}",
            [
                program_step("focus", settings, [*ours, f"precision={precision}"], "llama-15m"),
                lora("PEFT LoRA r=4", "--dtype", dtype),
                lora("PEFT LoRA r=4, torch.compile", "--dtype", dtype, "--compile"),
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
    "step_smollm2": step_smollm2_rows,
    "scratch": scratch_rows,
    "eval": text_rows.eval_rows,
    "prompts": functools.partial(text_rows.real_rows, "prompt"),
    "decoding": functools.partial(text_rows.real_rows, "decode"),
    "sparse_real": text_rows.sparse_real_rows,
    "tokenizers": text_rows.tokenizer_rows,
}
NEED_PEERS = set(GROUPS) - {"soft", "hard", "summary"}
