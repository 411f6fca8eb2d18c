"""What `focus export --with-code` writes, in the real transformers: for every family the logits of
`focus logits` with groups of keys and with groups of tokens, generation with and without a cache, a
padded batch, saving and loading again; and what the code must refuse. Run by run.sh."""

import inspect
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["OMP_NUM_THREADS"] = "1"  # ours too: threads only wait on models this small
work_home = tempfile.TemporaryDirectory()
os.environ["HF_MODULES_CACHE"] = work_home.name  # where transformers copies a folder's code to
import torch
import transformers
from compare import (CASES, VOCAB, Refused, documented_example, focus, load, logits_of, ours,
                     random_model, write_text)

TOLERANCE = 1e-4  # of the largest logit
LEAST_EFFECT = 1e-3  # of each attention, likewise: a smaller one would hide that it is not there
TOKENS = 90
FAMILIES = ("gpt2", "llama", "mistral", "qwen2", "qwen3", "olmo2", "gemma2", "gpt_neox",
            "gemma3_text", "phi3", "olmo3", "granite", "smollm3")
KEYS = ("summary", "summary:0", "summary:2", "summary:m=1:unselected_groups=drop",
        "summary:m=2:local_window=5:block=8:sinks=3", "summary:m=0:block=1:sinks=0", "summary:1:width=0",
        "summary:3", "summary:3:head_budgets=equal", "summary:2:selection_per=key_head", "local")
TOKENS_WORDS = ("soft", "soft:balance=none", "hard:1", "hard:k=2:gate=drop", "soft:sinks=3",
                "hard:1:sinks=3", "local", "summary:2", "summary:m=0:local_window=7:block=4",
                "summary:selection=own", "summary:1:width=0.5",
                "summary:2:selection_per=key_head")


def figure(actual, expected):
    return ((actual - expected).abs().max() / expected.abs().max()).item()


def agree(what, actual, expected):
    error = figure(actual, expected)
    if not error <= TOLERANCE:
        raise AssertionError(f"{what}: differs by {error:.2e} of the largest logit")
    return error


def sparse(folder, word=None):
    said = {} if word is None else {"focus_attention": word}
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=True, dtype=torch.float32, **said).eval()


def train(work, store, name, *words):
    """Focus for the model at `store`, a few steps of it, so that no number is what it began as."""
    text = work / "text.txt"
    write_text(text)
    focus("train", f"base={store}", "tokenizer=bytes", f"data.train={text}", f"data.valid={text}",
          "data.context=64", "data.batch=2", "steps=8", "eval_every=0", "checkpoint_every=0",
          "focus.num_groups=6", "focus.local_window=6", "optim.lr=0.05", "optim.warmup_steps=1",
          f"out={work / name}", *words)
    return work / name / "focus.h5"


def check_words(work, store, adapter, both, words):
    """Each word's logits: the program's with the stored adapter, transformers' with the folder."""
    ids = torch.randint(0, VOCAB, (TOKENS,)).tolist()
    dense = logits_of(load(both), ids)  # without trust_remote_code: the base
    worst = 0.0
    for word in words:
        expected = ours(work, ids, store, "--adapter", adapter, "--attention", word)["logits"]
        if figure(dense, expected) < LEAST_EFFECT:
            raise AssertionError(f"{word}: changes the logits by {figure(dense, expected):.1e} only")
        worst = max(worst, agree(word, logits_of(sparse(both, word), ids), expected))
    agree("dense", logits_of(sparse(both, "dense"), ids), dense)
    own = ours(work, ids, store, "--adapter", adapter)["logits"]
    return max(worst, agree("its own attention", logits_of(sparse(both), ids), own))


def generated(model, prompts, **words):
    """Greedy tokens behind each prompt, all of them in one batch padded on the left."""
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts])
    out = model.generate(ids, attention_mask=mask, max_new_tokens=30, do_sample=False,
                         eos_token_id=VOCAB + 1, pad_token_id=0, **words)
    return [row[width:].tolist() for row in out]


def check_generation(work, store, adapter, model, word):
    prompts = [torch.randint(3, VOCAB, (n,)).tolist() for n in (41, 23)]
    alone = [generated(model, [p])[0] for p in prompts]
    for prompt, tokens in zip(prompts, alone):
        expected = ours(work, prompt + tokens, store, "--adapter", adapter, "--attention",
                        word)["logits"].argmax(-1).tolist()
        assert tokens == expected[len(prompt) - 1:-1], f"generate, {word}: not our likeliest tokens"
    assert generated(model, prompts) == alone, f"{word}: a batch changes tokens"
    assert generated(model, prompts, use_cache=False) == alone, f"{word}: a cache changes tokens"
    # Several tokens at a time, and the logits themselves: what a cache keeps is what it kept.
    ids = torch.tensor([prompts[0]])
    whole = logits_of(model, prompts[0])
    cache, parts = transformers.DynamicCache(config=model.config), []
    takes = inspect.signature(model.forward).parameters
    word_of_cache = "cache" if "cache" in takes else "past_key_values"  # before transformers 5.24
    with torch.no_grad():
        for begin in range(0, len(prompts[0]), 7):
            part = model(ids[:, begin:begin + 7], use_cache=True, **{word_of_cache: cache})
            parts.append(part.logits[0])
    agree(f"{word}, seven tokens at a time", torch.cat(parts), whole)
    beams = model.generate(ids, num_beams=3, max_new_tokens=12, do_sample=False, pad_token_id=0,
                           eos_token_id=VOCAB + 1)
    slow = model.generate(ids, num_beams=3, max_new_tokens=12, do_sample=False, pad_token_id=0,
                          eos_token_id=VOCAB + 1, use_cache=False)
    assert torch.equal(beams, slow), f"{word}: a cache changes the beams"


def refused(what, wanted, call):
    try:
        call()
    except (ValueError, RuntimeError) as error:
        assert wanted in str(error), f"{what}: said {error}"
        return
    raise AssertionError(f"{what}: not refused")


def check_refusals(model, both, other):
    ids = torch.randint(3, VOCAB, (1, 12))
    hole = torch.ones_like(ids)
    hole[0, 5] = 0
    refused("a hole in the mask", "padding", lambda: model(ids, attention_mask=hole))
    refused("a mask of pairs", "attention_mask",
            lambda: model(ids, attention_mask=torch.zeros(1, 1, 12, 12)))
    refused("a static cache", "DynamicCache",
            lambda: model.generate(ids, cache_implementation="static", max_new_tokens=4))
    refused("packed sequences", "one sequence in a row",
            lambda: model(ids, position_ids=torch.tensor([[*range(7), *range(5)]])))
    refused(*other, lambda: sparse(both, other[0]))
    refused("another word", "expected one of", lambda: sparse(both, "sharp"))
    refused("another setting", "no setting", lambda: sparse(both, "summary:n=2"))
    refused("too many groups", "from 0 to 6", lambda: sparse(both, "summary:7"))
    behind = torch.ones_like(ids)
    behind[0, 9:] = 0  # padding behind the tokens changes nothing before it
    agree("padding behind", model(ids, attention_mask=behind).logits[0, :9], model(ids).logits[0, :9])


def check_saving(work, both, model, ids):
    again = work / "saved"
    model.save_pretrained(again)
    assert sorted(f.name for f in again.glob("*focus*")) == [
        "focus_config.json", "focus_model.safetensors", "modeling_focus.py"]
    agree("saved and loaded again", logits_of(sparse(again), ids), logits_of(model, ids))
    agree("saved, in the program", ours(work, ids, again)["logits"], logits_of(model, ids))
    narrow = transformers.AutoModelForCausalLM.from_pretrained(both, trust_remote_code=True,
                                                               dtype=torch.bfloat16).eval()
    assert logits_of(narrow, ids).isfinite().all(), "bfloat16"


def check_example(work, folder):
    """The Python of docs/files.md in a folder with the SPARSE of the command before it."""
    focus("corpus", "--out", work / "corpus.txt", "--documents", 12)
    focus("tokenizer", "train", "--text", work / "corpus.txt", "--vocab-size", VOCAB, "--out",
          work / "tok")
    base, before = work / "with-tokenizer.h5", Path.cwd()
    focus("import", folder, "--tokenizer", work / "tok", "--out", base)
    adapter = work / "tokens" / "focus.h5"
    focus("export", base, "--adapter", adapter, "--with-code", "--out", work / "SPARSE")
    try:
        os.chdir(work)
        names = documented_example("focus_attention=")
    finally:
        os.chdir(before)
    ids = names["prompt"]["input_ids"][0].tolist() * 8
    for model, word in ((names["model"], "soft"), (names["hard"], "hard:1")):
        agree("the documented code", logits_of(model.eval(), ids),
              ours(work, ids, base, "--adapter", adapter, "--attention", word)["logits"])


def check_family(work, family, seed):
    config_class, values, _ = CASES[family]
    model = random_model(getattr(transformers, config_class)(**values), seed)
    folder, store = work / "hf", work / "model.h5"
    model.save_pretrained(folder)
    focus("import", folder, "--out", store)
    worst = 0.0
    for name, words, settings in (
            ("keys", KEYS, ("focus.grouping=keys", "focus.training=summary", "focus.summary.block=4",
                            "focus.keys.fit_tokens=512")),
            ("tokens", TOKENS_WORDS, ("focus.tokens.routing_dim=8",
                                      *(["focus.tokens.gate=logit"] if seed % 2 else [])))):
        adapter = train(work, store, name, *settings)
        focus("leak-test", store, "--adapter", adapter, "--context", TOKENS, "--attention",
              ",".join(words))
        both, alone = work / f"both-{name}", work / f"adapter-{name}"
        focus("export", store, "--adapter", adapter, "--with-code", "--out", both)
        assert json.loads((both / "config.json").read_text())["model_type"] == family
        worst = max(worst, check_words(work, store, adapter, both, words))
        ids = torch.randint(0, VOCAB, (TOKENS,)).tolist()
        focus("export", adapter, "--out", alone)
        expected = ours(work, ids, store, "--adapter", adapter)["logits"]
        for what, model_words in (("adapter's folder", (store, "--adapter", alone)),
                                  ("model's folder", (both,))):
            assert torch.equal(ours(work, ids, *model_words)["logits"], expected), what
        for word in ("summary:2",) if name == "keys" else ("soft", "hard:2", "summary:2"):
            check_generation(work, store, adapter, sparse(both, word), word)
        sparse_model = sparse(both)
        check_refusals(sparse_model, both, ("hard:1", "only summary:M") if name == "keys" else
                       ("soft:balance=sequence", "soft:balance=carried"))
        check_saving(work / name, both, sparse_model, ids)
    if family == "llama":
        check_example(work, folder)
    return worst


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failed, families = 0, sys.argv[2:] or FAMILIES
    for seed, family in enumerate(FAMILIES, 1):
        if family not in families:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                worst = check_family(Path(folder), family, seed)
                print(f"{'with code, ' + family:28} agrees, differences up to {worst:.1e}",
                      flush=True)
            except (Refused, AssertionError, ValueError, RuntimeError) as error:
                failed += 1
                print(f"{'with code, ' + family:28} FAILED: {error}", flush=True)
    print(f"interop of --with-code: {len(families) - failed} agree, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
