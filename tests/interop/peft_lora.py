"""Adapters of the real PEFT through `focus` and ours through PEFT, for every family.

For each: PEFT writes an adapter on a tiny random model, for named linears and for all of them, and
the logits of `focus logits --adapter` must be PEFT's. Then `focus train` trains one (dropout and
all), PEFT loads what it wrote and must compute the same; and transformers, from what `focus merge`
folded and `focus export` wrote. Run by run.sh."""

import os
import sys
import tempfile
import warnings
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # ours too: threads only wait on models this small
import peft
import torch
import transformers
from compare import (CASES, TOKENS, VOCAB, Refused, focus, load, logits_of, ours, random_model,
                     write_text)

TOLERANCE = 1e-5  # of the largest logit
LEAST_EFFECT = 1e-2  # of an adapter, likewise: a smaller one would hide that nothing was added

# family: linears that are adapted, as PEFT's target_modules.
TARGETS = {
    "gpt2": ["c_attn", "c_proj"],
    "llama": ["q_proj", "v_proj"],
    "mistral": ["k_proj", "o_proj"],
    "qwen2": ["q_proj", "k_proj", "v_proj"],
    "qwen3": ["q_proj", "down_proj"],
    "olmo2": ["v_proj", "gate_proj"],
    "gemma2": ["o_proj", "up_proj"],
    "gpt_neox": ["query_key_value", "dense_h_to_4h"],
    "gemma3_text": ["q_proj", "gate_proj"],
    "phi3": ["qkv_proj", "gate_up_proj"],
    "olmo3": ["k_proj", "up_proj"],
    "granite": ["q_proj", "o_proj"],
    "smollm3": ["v_proj", "down_proj"],
}


def largest_difference(actual, expected):
    return ((actual - expected).abs().max() / expected.abs().max()).item()


def agree(what, actual, expected, plain):
    """How far two logits are from each other, both of a model that is not the plain one."""
    effect = largest_difference(plain, expected)
    if not effect >= LEAST_EFFECT:
        raise AssertionError(f"{what}: the adapter changes the logits by {effect:.1e} only")
    error = largest_difference(actual, expected)
    if not error <= TOLERANCE:
        raise AssertionError(f"{what}: differs by {error:.2e} of the largest logit")
    return error


def adapter_of_peft(work, folder, targets, rslora):
    """An adapter none of whose numbers is 0, where it lies, and the model with it."""
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=5, lora_dropout=0.1,
                             target_modules=targets, use_rslora=rslora)
    model = peft.get_peft_model(load(folder), config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.normal_(0, 0.1)
    model.save_pretrained(work)
    return model


def same_adapter(what, folder, model):
    """What PEFT holds of ours: every tensor of the file has its place, and no place is left out."""
    held = peft.get_peft_model_state_dict(model)
    written = peft.utils.load_peft_weights(folder, device="cpu")
    assert held.keys() == written.keys(), f"{what}: {sorted(held.keys() ^ written.keys())}"
    for name, tensor in written.items():
        assert torch.equal(held[name], tensor), f"{what}: {name} differs"


def check_family(work, family, seed):
    config_class, values, _ = CASES[family]
    model = random_model(getattr(transformers, config_class)(**values), seed)
    folder, text = work / "hf", work / "text.txt"
    model.save_pretrained(folder)
    write_text(text)
    ids = torch.randint(0, VOCAB, (TOKENS,)).tolist()
    plain = logits_of(model, ids)
    worst = 0.0
    for targets in (TARGETS[family], "all-linear"):
        name = "all-linear" if targets == "all-linear" else ",".join(targets)
        theirs = work / f"peft-{name}"
        expected = logits_of(adapter_of_peft(theirs, folder, targets, targets == "all-linear"), ids)
        worst = max(worst, agree(f"PEFT's adapter on {name}",
                                 ours(work, ids, folder, "--adapter", theirs)["logits"], expected,
                                 plain))

        run = work / f"ours-{name}"
        focus("train", "method=lora", f"base={folder}", "tokenizer=bytes", f"data.train={text}",
              "data.valid_fraction=0", "data.context=32", "data.batch=4", "steps=10", "lora.r=3",
              "lora.dropout=0.1", f"lora.target_modules=[{name}]", "optim.lr=0.02",
              "eval_every=0", "checkpoint_every=0", f"out={run}")
        loaded = peft.PeftModel.from_pretrained(load(folder), run).eval()
        same_adapter(f"our adapter on {name}", run, loaded)
        expected = logits_of(loaded, ids)
        worst = max(worst, agree(f"our adapter on {name}",
                                 ours(work, ids, folder, "--adapter", run)["logits"], expected,
                                 plain))
        merged, exported = work / f"{name}.h5", work / f"merged-{name}"
        focus("merge", folder, "--adapter", run, "--out", merged)
        focus("export", merged, "--out", exported)
        worst = max(worst, agree(f"merged, our adapter on {name}", logits_of(load(exported), ids),
                                 expected, plain))
    return worst


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "fan_in_fan_out is set to False")  # PEFT then sets it
    failed = 0
    for seed, family in enumerate(TARGETS, 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                worst = check_family(Path(folder), family, seed)
                print(f"{'LoRA on ' + family:28} agrees, differences up to {worst:.1e}", flush=True)
            except (Refused, AssertionError) as error:
                failed += 1
                print(f"{'LoRA on ' + family:28} FAILED: {error}", flush=True)
    print(f"interop with PEFT {peft.__version__}: {len(TARGETS) - failed} agree, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
