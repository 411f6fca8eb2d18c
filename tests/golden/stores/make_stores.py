"""Writes a file of each kind that the program writes, and the perplexities that each gives:
tests/golden/stores/kinds.

    python tests/golden/stores/make_stores.py PROGRAM OUT_FOLDER

It needs no packages. The committed files are those of the program of 26 November 2026. They are never made
again: users hold such files, and tests/golden/stores_golden_test.cpp opens them with the program of
today. A later kind gets a folder of its own, made by a later call. v1 and v2 beside them are of
earlier programs.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
OUT = pathlib.Path(sys.argv[2])
BASE = "base/model.h5"
TEXT = "text.txt"
# Configs, as words of a command line.
RUN = (
    f"data.train={TEXT} data.valid={TEXT} data.context=32 data.batch=2 steps=6 seed=3 "
    "optim.lr=0.05 optim.warmup_steps=2 eval_windows=4 threads=1 checkpoint_every=0 "
)
SHAPE = (
    "method=scratch tokenizer=bytes model.hidden_size=8 model.intermediate_size=16 "
    "model.num_attention_heads=2 model.initializer_range=0.5 "
)
SCRATCH = SHAPE + "model.num_hidden_layers=2 model.num_key_value_heads=1 "
MECHANISM = SHAPE + "model.num_hidden_layers=1 "
RETROFIT = f"method=retrofit base={BASE} "
LORA = f"method=lora base={BASE} lora.target_modules=[q_proj,up_proj] lora.r=2 lora.alpha=6 "
TOKENS = "focus.num_groups=4 focus.routing_dim=4 focus.local_window=5 focus.temperature=0.7 "
KEYS = (
    "focus.routing=keys focus.training=summary focus.num_groups=6 focus.read_groups=2 "
    "focus.local_window=3 focus.block=4 focus.sinks=2 "
)
TWO_PHASE = TOKENS + f"method=two_phase base={BASE} "

# Each run's folder and its keys. A folder that ends in _half is stopped at step 3: a checkpoint.
RUNS = {
    "base": SCRATCH,
    "tokens": RETROFIT
    + TOKENS
    + "focus.hard_gate=drop focus.affinity_floor=0.001 focus.sinkhorn_iters=5 "
    "focus.carried_rate=0.2 focus.sequence_steps=2 focus.training=hard focus.train_top_k=2",
    "tokens_logit": RETROFIT
    + TOKENS
    + "focus.gate=logit focus.gate_steepness=6 focus.balance=sequence",
    "tokens_summary": RETROFIT
    + TOKENS
    + "focus.training=summary focus.choice=own focus.rest=drop focus.block=4 focus.sinks=2",
    "keys": RETROFIT + KEYS + "focus.objective=kl focus.train_read_groups=1 focus.fit_tokens=512",
    "keys_three": RETROFIT + KEYS + "focus.read_groups=3 focus.rest=drop",
    "lora": LORA + "lora.rslora=true",
    "lora_keys": LORA + KEYS + "attention=focus",
    "indexer": RETROFIT
    + "attention=indexer indexer.tokens=6 indexer.heads=2 indexer.local_window=3",
    "two_phase": TWO_PHASE + "two_phase.phase1_steps=3 two_phase.warmup_steps=1",
    "full_keys": KEYS + f"method=full base={BASE} attention=focus focus.fit_step=2",
    "window": MECHANISM + "attention=window window.local_window=6",
    "performer": MECHANISM + "attention=performer performer.num_features=8 performer.seed=5",
    "routing_transformer": MECHANISM
    + "attention=routing_transformer routing_transformer.num_clusters=3 "
    "routing_transformer.local_window=4 routing_transformer.decay=0.9",
    "sink_window": MECHANISM
    + "attention=sink_window sink_window.local_window=4 sink_window.sinks=2",
    "random_groups": MECHANISM
    + "attention=random_groups random_groups.groups=3 random_groups.local_window=2",
    "tokens_half": RETROFIT
    + TOKENS
    + "focus.balance=none focus.balance_loss=0.4 focus.entropy_loss=0.3 focus.entropy_of=token "
    "focus.stop_gradient=true focus.centroid_update=average focus.centroid_rate=0.05 "
    "focus.recluster_every=2",
    "hard_half": RETROFIT + TOKENS + "focus.training=hard focus.train_top_k=3",
    "keys_half": RETROFIT + KEYS + "focus.objective=layers focus.fit_step=null",
    "lora_half": LORA + "lora.dropout=0.2",
    "indexer_half": RETROFIT + "attention=indexer indexer.tokens=6 indexer.heads=2",
    "two_phase_half": TWO_PHASE
    + "two_phase.phase1_steps=2 two_phase.lr=0.001 data.accumulate=2 optim.weight_decay=0.1",
    "routing_transformer_half": MECHANISM
    + "attention=routing_transformer routing_transformer.num_clusters=3 "
    "routing_transformer.local_window=4",
}
# What other commands write of these.
COMMANDS = [
    f"fit {BASE} --text {TEXT} --out fit/focus.h5 --num-groups 5 --context 32 --local-window 4 "
    "--block 4",
    "export tokens/focus.h5 --out tokens_folder",
    "export keys/focus.h5 --out keys_folder",
    f"export {BASE} --adapter tokens/focus.h5 --with-code --out model_tokens_folder",
    f"export {BASE} --adapter keys/focus.h5 --out model_keys_folder",
    f"export {BASE} --gguf gguf/base.gguf --dtype float32",
    f"export {BASE} --adapter lora/lora.h5 --gguf gguf/lora.gguf",
    "import model_keys_folder --out imported/model.h5 --dtype bf16 --tokenizer bytes",
]
MODELS = """
base/model.h5 two_phase/model.h5 full_keys/model.h5 model_tokens_folder model_keys_folder
gguf/base.gguf imported/model.h5 window/model.h5 performer/model.h5 routing_transformer/model.h5
sink_window/model.h5 random_groups/model.h5
""".split()
ADAPTERS = """
tokens/focus.h5 tokens_logit/focus.h5 tokens_summary/focus.h5 keys/focus.h5 fit/focus.h5
keys_three/focus.h5 lora/lora.h5 lora_keys/lora.h5 indexer/indexer.h5 tokens_folder keys_folder
peft_folder gguf/lora.gguf
""".split()


def focus(cache, *words):
    environment = {**os.environ, "XDG_CACHE_HOME": cache, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [str(PROGRAM), *words], cwd=OUT, env=environment, capture_output=True, text=True
    )
    if result.returncode != 0:
        sys.exit(f"focus {' '.join(words)}\n{result.stderr}")


def train(cache, name, keys, out, more=()):
    """Returns the loss on the validation text at the end."""
    figures = pathlib.Path(cache) / "figures.json"
    focus(cache, "train", *RUN.split(), *keys.split(), f"out={out}", *more, "--json", str(figures))
    return json.loads(figures.read_text())["valid_loss"]


def finish_elsewhere(cache, name, keys):
    """The loss that a stopped run ends with; its folder stays as it is."""
    copy = pathlib.Path(cache) / name
    shutil.copytree(OUT / name, copy)
    return train(cache, name, keys, copy, ["--resume"])


def evaluate(cache, model, adapter=None):
    figures = pathlib.Path(cache) / "figures.json"
    words = ["--adapter", adapter] if adapter else []
    if adapter == "tokens_summary/focus.h5":  # by itself it is evaluated soft and hard
        words += ["--attention", "summary"]
    if not model.endswith(".h5"):  # which has no tokenizer in it
        words += ["--tokenizer", "bytes"]
    focus(cache, "eval", model, *words, "--text", TEXT, "--context", "32", "--json", str(figures))
    rows = json.loads(figures.read_text())["rows"]
    return {
        "model": model,
        "adapter": adapter or "",
        "attentions": [row["attention"] for row in rows],
        "perplexities": [row["perplexity"] for row in rows],
    }


def write_text(cache):
    focus(cache, "corpus", "--out", "whole.txt", "--documents", "2", "--seed", "4")
    text = (OUT / "whole.txt").read_text()[:600]
    (OUT / "whole.txt").unlink()
    (OUT / TEXT).write_text(text)


def tidy():
    """PEFT's files get a folder of their own; what is no store of the program goes."""
    (OUT / "peft_folder").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.move(OUT / "lora" / name, OUT / "peft_folder" / name)
        (OUT / "lora_keys" / name).unlink()
    for name in ("metrics.jsonl", "config.yaml", "train.lock"):
        for path in OUT.glob(f"*/{name}"):
            if not path.parent.name.endswith("_half") or name == "train.lock":
                path.unlink()
    for path in OUT.glob("*/checkpoints"):
        if not path.parent.name.endswith("_half"):
            shutil.rmtree(path)
    (OUT / "model_tokens_folder" / "modeling_focus.py").unlink()


def main():
    OUT.mkdir(parents=True)
    for folder in ("fit", "gguf", "imported"):
        (OUT / folder).mkdir()
    with tempfile.TemporaryDirectory() as cache:
        write_text(cache)
        resumed = {}
        for name, keys in RUNS.items():
            half = name.endswith("_half")
            train(cache, name, keys, name, ["--stop-at", "3"] if half else [])
            if half:
                resumed[name] = finish_elsewhere(cache, name, keys)
        for command in COMMANDS:
            focus(cache, *command.split())
        tidy()
        evaluated = [evaluate(cache, model) for model in MODELS]
        evaluated += [evaluate(cache, BASE, adapter) for adapter in ADAPTERS]
    expected = {"evaluated": evaluated, "resumed_valid_loss": resumed}
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
