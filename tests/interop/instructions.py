"""LoRA on 2,000 instruction examples of SmolLM2-135M-Instruct, beside the real PEFT on the same
weights, masks, packing and order: the losses of 20 steps, the loss of held-out examples, and what
the merged model answers. Half of the examples are prompts with completions, half conversations; they
are made by rule. The reference tokenizes with transformers: of conversations the loss is what its
chat template marks as the assistant's (return_assistant_tokens_mask). Skipped with a line where the
file cannot be had. Run by run.sh."""

import json
import math
import random
import tempfile
from pathlib import Path

import peft
import torch
import transformers
from compare import fetch, focus

EXAMPLES, CONTEXT, PARTS, STEPS, LR = 2000, 128, 2, 20, 2e-4
TOLERANCE = 1e-4  # of a step's loss, in nats
TARGETS = ["q_proj", "v_proj"]
ANSWER = "{{ message['content'] }}<|im_end|>"
MARKED = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
          "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
          "<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
          "{% if message['role'] == 'assistant' %}{% generation %}" + ANSWER + "{% endgeneration %}"
          "{% else %}" + ANSWER + "{% endif %}{{ '\n' }}{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
WORDS = "river lamp garden stone music window forest copper winter harbor market silver".split()


def task(rng):
    """A question with one answer."""
    word, count = rng.choice(WORDS), rng.randint(2, 9)
    some = rng.sample(WORDS, rng.randint(3, 6))
    return rng.choice([
        (f"Spell the word {word}.", "-".join(word.upper())),
        (f"What is {count} plus {count * 3}?", f"{count} plus {count * 3} is {count * 4}."),
        (f"Sort these words: {', '.join(some)}.", "Sorted:\n" + "\n".join(sorted(some))),
        (f"Say {word} {count} times.", " ".join([word] * count) + "."),
        (f"How many words are there in: {' '.join(some)}?", f"There are {len(some)} words."),
    ])


def conversation(rng):
    messages = []
    if rng.random() < 0.3:
        messages.append({"role": "system", "content": "Answer with few words."})
    for _ in range(rng.randint(1, 3)):
        question, answer = task(rng)
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return messages


def write_examples(work, count, seed):
    rng = random.Random(seed)
    prompts = [dict(zip(("prompt", "completion"), task(rng))) for _ in range(count // 2)]
    for example in prompts:
        example["prompt"] = f"Q: {example['prompt']}\nA:"
        example["completion"] = " " + example["completion"]
    chats = [{"messages": conversation(rng)} for _ in range(count // 2)]
    files = []
    for name, lines in (("prompts", prompts), ("chats", chats)):
        files.append(work / f"{name}{seed}.jsonl")
        files[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    return files, prompts + chats


def tokens_of(example, tokenizer):
    """Ids, and of each whether it is learned."""
    if "prompt" in example:
        prompt = tokenizer(example["prompt"])["input_ids"]
        ids = tokenizer(example["prompt"] + example["completion"])["input_ids"]
        assert ids[:len(prompt)] == prompt
        ids = ids + [tokenizer.eos_token_id]
        return ids, [0] * len(prompt) + [1] * (len(ids) - len(prompt))
    out = tokenizer.apply_chat_template(example["messages"], chat_template=MARKED, return_dict=True,
                                        return_assistant_tokens_mask=True)
    plain = tokenizer.apply_chat_template(example["messages"], tokenize=False)
    assert tokenizer(plain, add_special_tokens=False)["input_ids"] == out["input_ids"]
    return out["input_ids"], out["assistant_masks"]


def best_fit(sizes):
    """Best fit, the longest first; windows by their first document."""
    windows = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        fitting = [w for w in windows if w[0] >= sizes[i]]
        window = min(fitting, key=lambda w: w[0]) if fitting else [CONTEXT, []]
        if not fitting:
            windows.append(window)
        window[0] -= sizes[i]
        window[1].append(i)
    return sorted(sorted(window) for _, window in windows)


def summed_loss(model, documents):
    """Of one row, and how many labels it has."""
    ids, positions, labels, owner = [], [], [], []
    for number, (of_document, counts) in enumerate(documents):
        ids += of_document
        positions += range(len(of_document))
        labels += [-100] + [i if c else -100 for i, c in zip(of_document[1:], counts[1:])]
        owner += [number] * len(of_document)
    owner = torch.tensor(owner)
    seen = (owner[:, None] == owner) & torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
    mask = torch.zeros(1, 1, len(ids), len(ids)).masked_fill(~seen, torch.finfo(torch.float32).min)
    logits = model(input_ids=torch.tensor([ids]), position_ids=torch.tensor([positions]),
                   attention_mask=mask).logits[0, :-1]
    labels = torch.tensor(labels[1:])
    return (torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="sum"),
            int((labels != -100).sum()))


def train(model, rows):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.0)
    losses = []
    for step in range(STEPS):
        parts = [summed_loss(model, rows[(step * PARTS + i) % len(rows)]) for i in range(PARTS)]
        loss = sum(of_part for of_part, _ in parts) / sum(labels for _, labels in parts)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def run_of(file, train_files, out, *more):
    focus("train", "method=lora", f"base={file}", f"data.train=[{','.join(map(str, train_files))}]",
          "data.valid_fraction=0", f"data.context={CONTEXT}", "data.batch=1", "data.shuffle=false",
          f"data.gradient_accumulation_steps={PARTS}", "lora.r=8", "lora.alpha=16",
          f"lora.target_modules=[{','.join(TARGETS)}]", "optim.warmup_steps=0",
          "optim.final_lr_ratio=1", "optim.beta1=0.9", "optim.beta2=0.95", "optim.weight_decay=0",
          "log_every=1", "eval_every=0", "checkpoint_every=0", f"data.cache_dir={out.parent}",
          f"out={out}", *more)


def check_losses(work, file, folder, tokenizer):
    files, examples = write_examples(work, EXAMPLES, 1)
    # An adapter as it begins: a step that is too small to move anything.
    run_of(file, files, work / "start", "steps=1", "optim.lr=1e-30")
    run_of(file, files, work / "run", f"steps={STEPS}", f"optim.lr={LR}")
    ours = [json.loads(line) for line in (work / "run" / "metrics.jsonl").read_text().splitlines()]
    ours = [line["loss"] for line in ours if "loss" in line]
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = peft.PeftModel.from_pretrained(base, work / "start", is_trainable=True)
    for name, p in model.named_parameters():
        if "lora_B" in name:
            p.data.zero_()
    # What is longer than a window is cut at its end; what is then without an answer is left out.
    documents = [[part[:CONTEXT] for part in tokens_of(example, tokenizer)] for example in examples]
    documents = [document for document in documents if any(document[1][1:])]
    windows = best_fit([len(ids) for ids, _ in documents])
    theirs = train(model, [[documents[i] for i in window] for window in windows])
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    for step, (a, b) in enumerate(zip(ours, theirs), 1):
        print(f"  step {step:2}: focus {a:.6f}, PEFT {b:.6f}, difference {a - b:+.1e}")
    assert worst < TOLERANCE, f"losses differ by {worst:.1e}"
    print(f"losses of {STEPS} steps: {ours[0]:.4f} to {ours[-1]:.4f}, differences up to {worst:.1e}")
    return model.eval()


def check_evaluation(work, file, model, tokenizer):
    files, examples = write_examples(work, 20, 2)
    with torch.no_grad():
        scores = [summed_loss(model, [tokens_of(example, tokenizer)]) for example in examples]
    expected = math.exp(sum(s.item() for s, _ in scores) / sum(n for _, n in scores))
    focus("eval", file, "--adapter", work / "run", "--text", *files, "--context", 512,
          "--attention", "dense", "--json", work / "eval.json")
    row = json.loads((work / "eval.json").read_text())["rows"][0]
    assert row["tokens_scored"] == sum(n for _, n in scores), row
    assert abs(row["perplexity"] / expected - 1) < 1e-4, (row, expected)
    print(f"perplexity of held-out answers: focus {row['perplexity']:.5f}, PEFT {expected:.5f}")


def check_answer(work, file, model, tokenizer):
    focus("merge", file, "--adapter", work / "run", "--out", work / "merged.h5")
    for question in ("Spell the word planet.", "What is 5 plus 15?"):
        messages = [{"role": "user", "content": question}]
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        with torch.no_grad():
            out = model.generate(input_ids=torch.tensor([ids]), do_sample=False, max_new_tokens=24,
                                 repetition_penalty=1.0)
        expected = tokenizer.decode(out[0, len(ids):], skip_special_tokens=True).strip()
        answer = focus("generate", work / "merged.h5", "--chat", "--prompt", question,
                       "--max-new-tokens", 24, "--temperature", 0).strip()
        assert answer.endswith(expected), (question, answer, expected)
        print(f"  {question} -> {expected}")


def on_smollm2(what, check):
    """Calls check(work, file, folder, tokenizer) with the GGUF file and the same model as a folder of
    transformers; prints a line where the file cannot be had."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        file = fetch(work)
        if file is None:
            print(f"interop: {what} skipped: SmolLM2 cannot be had")
            return
        exported = work / "smollm2"
        focus("export", file, "--out", exported)
        check(work, file, exported, transformers.AutoTokenizer.from_pretrained(exported))


def check(work, file, folder, tokenizer):
    model = check_losses(work, file, folder, tokenizer)
    check_evaluation(work, file, model, tokenizer)
    check_answer(work, file, model, tokenizer)
    print("instructions on SmolLM2: as PEFT")


if __name__ == "__main__":
    on_smollm2("instructions", check)
