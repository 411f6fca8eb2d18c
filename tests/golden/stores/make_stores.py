"""Writes files of each kind that the program writes, and the figures that each gives: tests/golden/stores.

    python tests/golden/stores/make_stores.py PROGRAM

It needs no packages. tests/golden/stores_golden_test.cpp opens the files. From version 0.1.0 on they are
not made again: users hold such files. It keeps text.txt and says which figures of expected.json changed.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
OUT = pathlib.Path(__file__).parent
BASE = "base/model.h5"
TEXT = "text.txt"
# Configs, as words of a command line.
RUN = (
    f"data.train={TEXT} data.valid={TEXT} data.context=32 data.batch=2 steps=6 seed=3 "
    "optim.lr=0.05 optim.warmup_steps=2 eval_windows=4 threads=1 checkpoint_every=0 "
)
SHAPE = (
    "method=scratch tokenizer=bytes model.intermediate_size=16 "
    "model.num_attention_heads=2 model.initializer_range=0.5 "
)
SCRATCH = SHAPE + "model.hidden_size=8 model.num_hidden_layers=2 model.num_key_value_heads=1 "
MECHANISM = SHAPE + "model.num_hidden_layers=1 "
RETROFIT = f"method=retrofit base={BASE} "
LORA = f"method=lora base={BASE} lora.target_modules=[q_proj,up_proj] lora.r=2 lora.alpha=6 "
TOKENS = "focus.num_groups=4 focus.tokens.routing_dim=4 focus.local_window=5 focus.tokens.temperature=0.7 "
KEYS = (
    "focus.grouping=keys focus.training=summary focus.num_groups=6 focus.local_window=3 "
    "focus.summary.num_selected_groups=2 focus.summary.block=4 focus.summary.sinks=2 "
)
TWO_PHASE = TOKENS + f"method=two_phase base={BASE} "

# Each run's folder and its keys. A folder that ends in _half is stopped at step 3: a checkpoint.
RUNS = {
    "base": SCRATCH,
    "tokens": RETROFIT + TOKENS + "focus.training=hard focus.tokens.train_top_k=2",
    "keys": RETROFIT + KEYS,
    "lora": LORA + "lora.rslora=true",
    "indexer": RETROFIT
    + "attention=indexer:6:heads=2:local_window=3",
    "full_keys": KEYS + f"method=full base={BASE} attention=focus focus.keys.fit_step=2",
    "routing_transformer": MECHANISM
    + "model.hidden_size=8 attention=routing_transformer:3:local_window=4:decay=0.9",
    "wide": MECHANISM + "model.hidden_size=32",
    "tokens_half": RETROFIT + TOKENS,
    "keys_half": RETROFIT + KEYS,
    "lora_half": LORA + "lora.dropout=0.2",
    "two_phase_half": TWO_PHASE + "two_phase.phase1_steps=2",
}
# What other commands write of these.
COMMANDS = [
    "export tokens/focus.h5 --out tokens_folder",
    "export keys/focus.h5 --out keys_folder",
    f"export {BASE} --gguf gguf/base.gguf --dtype float32",
    f"export {BASE} --adapter lora/lora.h5 --gguf gguf/lora.gguf",
    "import wide/model.h5 --out blocks/model.h5 --dtype q8_0",
]
MODELS = [
    BASE,
    "full_keys/model.h5",
    "routing_transformer/model.h5",
    "blocks/model.h5",
    "gguf/base.gguf",
]
ADAPTERS = """
tokens/focus.h5 keys/focus.h5 lora/lora.h5 indexer/indexer.h5 tokens_folder keys_folder peft_folder gguf/lora.gguf
""".split()


def focus(cache, *words):
    environment = {**os.environ, "XDG_CACHE_HOME": cache, "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [str(PROGRAM), *words], cwd=OUT, env=environment, capture_output=True, text=True
    )
    if result.returncode != 0:
        sys.exit(f"focus {' '.join(words)}\n{result.stderr}")


def train(cache, keys, out, more=()):
    """Returns the loss on the validation text at the end."""
    figures = pathlib.Path(cache) / "figures.json"
    focus(cache, "train", *RUN.split(), *keys.split(), f"out={out}", *more, "--json", str(figures))
    return json.loads(figures.read_text())["valid_loss"]


def finish_elsewhere(cache, name, keys):
    """The loss that a stopped run ends with; its folder stays as it is."""
    copy = pathlib.Path(cache) / name
    shutil.copytree(OUT / name, copy)
    return train(cache, keys, copy, ["--resume"])


def evaluate(cache, model, adapter=None):
    figures = pathlib.Path(cache) / "figures.json"
    words = ["--adapter", adapter] if adapter else []
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


def clear():
    """Removes the files that are there, but for the text."""
    for folder in OUT.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    for folder in ("gguf", "blocks"):
        (OUT / folder).mkdir()


def remove_others():
    """PEFT's files get a folder of their own; what nothing reads goes."""
    (OUT / "peft_folder").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        shutil.move(OUT / "lora" / name, OUT / "peft_folder" / name)
    shutil.rmtree(OUT / "wide")
    for path in OUT.glob("*/train.lock"):
        path.unlink()
    for name in ("metrics.jsonl", "config.yaml", "checkpoints"):
        for path in OUT.glob(f"*/{name}"):
            if not path.parent.name.endswith("_half"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def tell_changes(expected, file):
    """A line for each figure that is another than in `file`."""
    if not file.exists():
        return
    before = json.loads(file.read_text())
    for item in expected["evaluated"]:
        if item not in before["evaluated"]:
            print("changed:", json.dumps(item))
    for name, loss in expected["resumed_valid_loss"].items():
        if before["resumed_valid_loss"].get(name) != loss:
            print(f"changed: {name} resumed to {loss}")


def main():
    clear()
    with tempfile.TemporaryDirectory() as cache:
        resumed = {}
        for name, keys in RUNS.items():
            half = name.endswith("_half")
            train(cache, keys, name, ["--stop-at", "3"] if half else [])
            if half:
                resumed[name] = finish_elsewhere(cache, name, keys)
        for command in COMMANDS:
            focus(cache, *command.split())
        remove_others()
        evaluated = [evaluate(cache, model) for model in MODELS]
        evaluated += [evaluate(cache, BASE, adapter) for adapter in ADAPTERS]
    expected = {"evaluated": evaluated, "resumed_valid_loss": resumed}
    tell_changes(expected, OUT / "expected.json")
    (OUT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


main()
