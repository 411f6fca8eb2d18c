"""Direct preference optimisation of a LoRA on SmolLM2-135M-Instruct beside the real TRL: loss,
accuracy and margin of each step, for prompts that are texts, with PEFT's LoRA+ optimiser, and for
conversations. Of these TRL also learns what the chat template writes behind an answer's end, a line
break, which focus leaves out: they agree less closely. Then TensorBoard's own reader on the event files of those runs. Skipped with
a line where the file cannot be had. Run by run.sh."""

import json
import random

import datasets
import peft
import peft.optimizers
import torch
import transformers
import trl
from compare import focus
from instructions import on_smollm2, task
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

STEPS, PAIRS, CONTEXT, LR, BETA = 12, 2, 256, 5e-4, 0.2
TOLERANCE = {"loss": 2e-4, "rewards/margins": 2e-3, "rewards/accuracies": 0.0}
CHAT = 10  # times as much
LORA_PLUS = 4.0


def pairs(count, seed, chat):
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        question, answer = task(rng)
        other = task(rng)[1]
        if chat:
            rows.append({"prompt": [{"role": "user", "content": question}],
                         "chosen": [{"role": "assistant", "content": answer}],
                         "rejected": [{"role": "assistant", "content": other + " Or not."}]})
        else:
            rows.append({"prompt": f"Q: {question}\nA:", "chosen": " " + answer,
                         "rejected": " " + other + " Or not."})
    return rows


def ours(file, data, out, *more):
    focus("train", "method=lora", "objective=dpo", f"dpo_beta={BETA}", f"base={file}",
          f"data.train=[{data}]", "data.valid_fraction=0", f"data.context={CONTEXT}",
          f"data.batch={PAIRS}", "data.shuffle=false", "lora.r=8", "lora.alpha=16",
          "lora.target_modules=[q_proj,v_proj]", "optim.warmup_steps=0", "optim.schedule=constant",
          "optim.beta1=0.9", "optim.beta2=0.95", "log_every=1", "log=tensorboard", "eval_every=0",
          f"data.cache_dir={out.parent}", f"out={out}", *more)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line]


def theirs(folder, start, rows, tokenizer, work, lora_plus):
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, start, is_trainable=True)
    for name, p in model.named_parameters():
        if "lora_B" in name:
            p.data.zero_()
    settings = trl.DPOConfig(
        output_dir=str(work / "trl"), per_device_train_batch_size=PAIRS, max_steps=STEPS, beta=BETA,
        learning_rate=LR, lr_scheduler_type="constant", adam_beta1=0.9, adam_beta2=0.95,
        adam_epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0, logging_steps=1, max_length=CONTEXT,
        use_cpu=True, bf16=False, fp16=False, gradient_checkpointing=False, report_to="none",
        save_strategy="no", disable_dropout=True, disable_tqdm=True, train_sampling_strategy="sequential")
    optimizers = (None, None)
    if lora_plus:
        optimizer = peft.optimizers.create_loraplus_optimizer(
            model, torch.optim.AdamW, lr=LR, loraplus_lr_ratio=LORA_PLUS, betas=(0.9, 0.95), eps=1e-8)
        optimizers = (optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0))
    trainer = trl.DPOTrainer(model=model, args=settings, train_dataset=datasets.Dataset.from_list(rows),
                             processing_class=tokenizer, optimizers=optimizers)
    trainer.train()
    return [line for line in trainer.state.log_history if "rewards/margins" in line]


def check_events(run):
    """Every number of metrics.jsonl is read by TensorBoard at its step."""
    events = EventAccumulator(str(run))
    events.Reload()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for tag in ("loss", "grad_norm", "lr", "rewards/margins"):
        read = [(e.step, e.value) for e in events.Scalars(tag)]
        expected = [(line["step"], line[tag]) for line in lines if tag in line]
        assert [step for step, _ in read] == [step for step, _ in expected], (tag, read)
        assert all(abs(a - b) <= 1e-6 * max(1, abs(b)) for (_, a), (_, b) in zip(read, expected)), tag


def check(work, file, folder, tokenizer, chat):
    rows = pairs(STEPS * PAIRS, 7 + chat, chat)
    data = work / f"pairs{chat:d}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run, start = work / f"run{chat:d}", work / f"start{chat:d}"
    ours(file, data, start, "steps=1", "optim.lr=1e-30")
    more = [] if chat else [f"optim.lora_plus_ratio={LORA_PLUS}"]
    a = ours(file, data, run, f"steps={STEPS}", f"optim.lr={LR}", *more)
    b = theirs(folder, start, rows, tokenizer, work, not chat)
    for key, most in TOLERANCE.items():
        worst = max(abs(x[key] - y[key]) for x, y in zip(a, b, strict=True))
        print(f"  {'conversations' if chat else 'prompts, LoRA+'}: {key} {a[0][key]:.4f} to "
              f"{a[-1][key]:.4f}, differences from TRL up to {worst:.1e}")
        assert worst <= most * (CHAT if chat else 1), (key, [(x[key], y[key]) for x, y in zip(a, b)])
    check_events(run)


def check_both(work, file, folder, tokenizer):
    for chat in (False, True):
        check(work, file, folder, tokenizer, chat)
    print("DPO agrees with TRL, LoRA+ with PEFT; TensorBoard reads the event files")


if __name__ == "__main__":
    on_smollm2("DPO", check_both)
