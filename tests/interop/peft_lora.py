"""Does the real PEFT compute what we compute from the same adapter, both ways?

    python tests/interop/peft_lora.py build/release/focus tests/golden

Needs torch, transformers and peft. For each golden adapter that PEFT wrote: `focus merge` folds it
and PEFT's own logits must be those of the merged weights. Then `focus train` trains an adapter on
the same base (dropout and all), PEFT loads what it wrote, and `focus merge` must agree again.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import h5py
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

LIMIT = 1e-4  # of the largest logit


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(ids).logits


def merged_by_us(focus: str, base: Path, adapter: Path, work: Path):
    """The base with the weights of our merged store, in transformers."""
    store = work / "merged.h5"
    subprocess.run(
        [focus, "merge", base, "--adapter", adapter, "--out", store, "--overwrite", "--context", "32"],
        check=True, stdout=subprocess.DEVNULL)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with h5py.File(store) as file, torch.no_grad():
        for name, parameter in model.named_parameters():
            stored = file["model/" + name.replace(".", "/")][()]
            parameter.copy_(torch.from_numpy(stored))
    return model


def check(focus: str, base: Path, adapter: Path, work: Path, what: str) -> bool:
    reference = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    ids = torch.arange(64).reshape(2, 32) * 7 % reference.config.vocab_size
    plain = logits(reference, ids)
    theirs = logits(PeftModel.from_pretrained(reference, adapter), ids)
    ours = logits(merged_by_us(focus, base, adapter, work), ids)
    scale = theirs.abs().max()
    difference = ((ours - theirs).abs().max() / scale).item()
    effect = ((theirs - plain).abs().max() / scale).item()
    good = difference < LIMIT and effect > 100 * LIMIT
    print(f"{'ok  ' if good else 'FAIL'} {what}: differs by {difference:.1e}, adapter's effect {effect:.1e}")
    return good


def write_tokenizer(path: Path):
    """Byte-level BPE without merges over the printable ASCII characters: it fits the golden bases."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    vocabulary = {"\u0120" if c == 32 else chr(c): c - 32 for c in range(32, 127)}
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []}}))


def main() -> int:
    focus, golden = sys.argv[1], Path(sys.argv[2])
    good = True
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "text.txt").write_text("".join(chr(32 + (i * i) % 61) for i in range(6000)))
        (work / "ascii").mkdir()
        write_tokenizer(work / "ascii" / "tokenizer.json")
        for adapter in sorted((golden / "lora").iterdir()):
            base = golden / "arch" / adapter.name
            good &= check(focus, base, adapter, work, f"{adapter.name}, PEFT's adapter")
        for base in [golden / "arch" / a.name for a in sorted((golden / "lora").iterdir())]:
            out = work / base.name
            subprocess.run(
                [focus, "train", "method=lora", f"base={base}", f"tokenizer={work}/ascii/tokenizer.json",
                 f"data.train={work}/text.txt", "data.valid_fraction=0", "data.context=32", "data.batch=4", "steps=20",
                 "lora.r=3", "lora.dropout=0.1", "optim.lr=0.01", f"data.cache_dir={work}/cache",
                 f"out={out}"],
                check=True, stdout=subprocess.DEVNULL)
            good &= check(focus, base, out, work, f"{base.name}, our adapter")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
