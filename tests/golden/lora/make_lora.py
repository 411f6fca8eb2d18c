"""Makes tests/golden/lora/MODEL/: adapters of PEFT on transformers' models, and a training run.

    python tests/golden/lora/make_lora.py [--out FOLDER] [--seed N]

The committed files: torch 2.15.0, transformers 5.24.0, peft 0.21.2, h5py 3.16.0.
It reads FOLDER/arch, which arch/make_arch.py makes. A folder is PEFT's (adapter_config.json,
adapter_model.safetensors) with io.h5 beside it: input_ids, logits, loss, grad/NAME, then a run:
tokens, losses, grad_norms, learning_rates, final/NAME, attributes hyper_*. distilled.h5 is another
run, of that adapter together with Focus, soft: its loss is KL(base, dense || both) plus lm_weight
times the cross-entropy; initial/layers and final/layers hold Focus.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from focus_reference import FocusConfig
from golden_files import arguments, coarse, exact, f32, write_h5
from tiny_models import attach_focus, freeze, load_model, random_focus
from training_curve import MODELS, SETTINGS, curve_file, random_batches, train


def attach_lora(name: str, folder: Path, generator: torch.Generator):
    gpt2 = name == "gpt2"
    config = LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=["c_attn", "c_proj"] if gpt2 else ["q_proj", "v_proj"],
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
        fan_in_fan_out=gpt2,
    )
    model = get_peft_model(load_model(folder), config).double().eval()
    with torch.no_grad():  # B is zero at first: an adapter without effect
        for key, p in model.named_parameters():
            if "lora_B" in key:
                p.copy_(f32(0.02 * torch.randn(p.shape, generator=generator)))
            elif "lora_A" in key:
                p.copy_(f32(p))
    return model


def lora_parameters(model) -> dict:
    """By their names in a file."""
    return {key.replace(".default", ""): p for key, p in model.named_parameters() if "lora_" in key}


def write_adapter(model, name: str, folder: Path):
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: p.detach().float().contiguous() for key, p in lora_parameters(model).items()}
    save_file(tensors, folder / "adapter_model.safetensors")
    config = model.peft_config["default"].to_dict()
    config = {key: sorted(x) if isinstance(x, set) else x for key, x in config.items()}
    config["base_model_name_or_path"] = f"arch/{name}"
    text = json.dumps(config, indent=1, default=str)
    (folder / "adapter_config.json").write_text(text + "\n")


FOCUS = FocusConfig(4, 8, 0.5, 10, 8.0, 6, "affinity", "sequence")
LM_WEIGHT = 0.5


def make_distilled(name: str, out: Path, generator: torch.Generator):
    batches = random_batches(generator)
    teacher = load_model(out / "arch" / name)
    freeze(teacher)
    student = PeftModel.from_pretrained(load_model(out / "arch" / name), out / "lora" / name, is_trainable=True)
    student.double()
    focus = random_focus(student.get_base_model(), FOCUS, generator)
    attach_focus(student.get_base_model(), focus, FOCUS)
    layers = {f"layers/{i}/{key}": p[key] for i, p in enumerate(focus) for key in ("w_g", "centroids")}
    trained = {**layers, **lora_parameters(student)}
    initial = {f"initial/{key}": exact(x).copy() for key, x in layers.items()}

    def objective(ids, labels):
        answer = student(ids, labels=labels)
        p, q = (torch.log_softmax(logits, -1) for logits in (teacher(ids).logits, answer.logits))
        divergence = (p.exp() * (p - q)).sum(-1).mean()
        return SimpleNamespace(loss=divergence + LM_WEIGHT * answer.loss)

    settings = dict(SETTINGS, lr=5e-3)
    run, attributes = curve_file(batches, train(objective, list(trained.values()), batches, settings), settings)
    final = {f"final/{key}": coarse(x) for key, x in trained.items()}
    path = out / "lora" / name / "distilled.h5"
    write_h5(path, {**run, **initial, **final}, lm_weight=LM_WEIGHT, **vars(FOCUS), **attributes)


def main():
    args = arguments(__doc__.splitlines()[0], seed=20260403)
    for name in MODELS:
        generator = torch.Generator().manual_seed(args.seed + 778)
        torch.manual_seed(args.seed + 5)  # PEFT draws A
        batches = random_batches(generator)
        model = attach_lora(name, args.out / "arch" / name, generator)
        folder = args.out / "lora" / name
        write_adapter(model, name, folder)
        trained, ids = lora_parameters(model), batches[0]
        out = model(ids, labels=ids)
        gradients = torch.autograd.grad(out.loss, list(trained.values()))
        arrays = {"input_ids": ids.to(torch.int32)}
        arrays.update(logits=coarse(out.logits), loss=coarse(out.loss))
        arrays.update({f"grad/{key}": coarse(x) for key, x in zip(trained, gradients)})
        curve = train(model, list(trained.values()), batches, SETTINGS)
        run, attributes = curve_file(batches, curve, SETTINGS)
        arrays.update(run)
        arrays.update({f"final/{key}": coarse(x) for key, x in trained.items()})
        write_h5(folder / "io.h5", arrays, **attributes)
        make_distilled(name, args.out, generator)


main()
