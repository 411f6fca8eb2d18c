"""What `focus export --gguf` writes, in the real llama.cpp (xllamacpp), for every family.

For each: a tiny random model made by transformers with a tokenizer made on the spot. llama.cpp must
compute its log probabilities (float32 and F16) and take its ten greedy tokens, Q8_0 must load,
text must become the same ids, and a LoRA of PEFT must do in llama.cpp what it does in PEFT. Run by
run.sh."""

import json
import os
import sys
import tempfile
import urllib.request
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
import tokenizers
import torch
import transformers
import xllamacpp
from compare import Refused, focus, random_model
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

# Of the largest log probability. llama.cpp rounds what F16 weights are multiplied by to F16 too; its
# gelu comes from a table of float16.
TOLERANCE = {"float32": 2e-4, "f16": 5e-3}
GELU_TABLE = 4e-3
NEW_TOKENS = 10
VOCAB = 320
SIZES = dict(vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=3,
             num_attention_heads=4, max_position_embeddings=128, bos_token_id=1, eos_token_id=2)
GROUPED = SIZES | dict(num_key_value_heads=2)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=4.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=32)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=2.0)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32,
            beta_fast=8.0)
LOCAL_GLOBAL = ["sliding_attention", "full_attention", "sliding_attention"]
PHRASES = ["Hello world", "It's 12345 o'clock, isn't it?", "  two  spaces\n\n\tand a tab",
           "naïve café — 東京 🙂", "", " ", "x" * 40, "THE END.\r\n", "<|end|>after<|end|>"]

# name: class of the config, its values, tokenizer, PEFT's target_modules.
CASES = {
    "llama": ("LlamaConfig", GROUPED, "llama3", ["q_proj", "k_proj", "down_proj"]),
    "llama tied, llama3 rope": ("LlamaConfig", GROUPED | dict(
        tie_word_embeddings=True, rope_parameters=LLAMA3), "smollm", "all-linear"),
    "llama with biases": ("LlamaConfig", GROUPED | dict(attention_bias=True, mlp_bias=True),
                          "sentencepiece", ["v_proj"]),
    "llama, heads of 24": ("LlamaConfig", GROUPED | dict(head_dim=24, rope_parameters=LINEAR),
                           "gpt2", ["o_proj"]),
    "mistral": ("MistralConfig", GROUPED | dict(sliding_window=128), "sentencepiece",
                ["q_proj", "v_proj"]),
    "qwen2": ("Qwen2Config", GROUPED, "qwen2", ["k_proj", "up_proj"]),
    "qwen2 tied": ("Qwen2Config", GROUPED | dict(tie_word_embeddings=True), "qwen2", ["q_proj"]),
    "qwen3": ("Qwen3Config", GROUPED | dict(head_dim=32), "qwen2", "all-linear"),
    "olmo2": ("Olmo2Config", SIZES, "llama3 with merges", ["q_proj", "gate_proj"]),
    "gemma2": ("Gemma2Config", GROUPED | dict(head_dim=16, sliding_window=8,
                                              query_pre_attn_scalar=16), "gemma", ["o_proj"]),
    "gpt2": ("GPT2Config", dict(vocab_size=VOCAB, n_embd=64, n_layer=3, n_head=4, n_positions=128,
                                bos_token_id=2, eos_token_id=2), "gpt2", ["c_attn", "c_fc"]),
    "gpt_neox": ("GPTNeoXConfig", SIZES | dict(rotary_pct=0.5, hidden_act="gelu"), "gpt2",
                 ["query_key_value", "dense"]),
    "gemma3_text": ("Gemma3TextConfig", GROUPED | dict(
        head_dim=16, sliding_window=8, query_pre_attn_scalar=16, layer_types=LOCAL_GLOBAL,
        rope_parameters=dict(full_attention=LINEAR, sliding_attention=dict(
            rope_type="default", rope_theta=1000.0))), "gemma", ["q_proj", "up_proj"]),
    "phi3": ("Phi3Config", GROUPED | dict(
        pad_token_id=0, original_max_position_embeddings=16, rope_parameters=dict(
        rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
        short_factor=[1.0, 1.1, 1.2, 1.5, 1.7, 2.0], long_factor=[1.5, 2.0, 2.5, 3.0, 4.0, 8.0])),
        "sentencepiece", ["qkv_proj", "gate_up_proj"]),
    "olmo3": ("Olmo3Config", GROUPED | dict(
        sliding_window=8, layer_types=LOCAL_GLOBAL, rope_parameters=dict(
            full_attention=YARN, sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
        "llama3 with merges", ["k_proj", "down_proj"]),
    "granite": ("GraniteConfig", GROUPED | dict(
        embedding_multiplier=3.0, residual_multiplier=0.7, attention_multiplier=0.4,
        logits_scaling=2.0, tie_word_embeddings=True), "gpt2", ["q_proj", "o_proj"]),
    "smollm3": ("SmolLM3Config", GROUPED | dict(num_hidden_layers=5, pad_token_id=0), "llama3",
                ["k_proj", "up_proj"]),
    "llama yarn": ("LlamaConfig", GROUPED | dict(rope_parameters=YARN), "gpt2", ["q_proj"]),
}
SPLITS = {
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
              r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
             r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
SPECIAL = ["<unk>", "<s>", "</s>", "<|end|>"]
TEXT = ["the cat and the other hats, that the man has had in the end; 1234 is 12 and 34"] * 4
TEMPLATE = "{% for m in messages %}{{ m['content'] }}<|end|>{% endfor %}"


def byte_level(kind):
    ignore_merges = kind == "llama3"
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
    split = SPLITS.get(kind.split()[0])
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)]
    if split:
        steps.insert(0, pre_tokenizers.Split(tokenizers.Regex(split), "isolated"))
    if kind == "smollm":
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 4, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXT, trainer)
    if kind == "llama3":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def with_byte_fallback(kind):
    """As transformers has Llama's and Gemma's: all merges of every token, the best first."""
    words = ["he", "th", "the", "▁t", "▁the", "an", "and", "▁a", "at", "hat", "cat", "▁▁", "12"]
    letters = sorted(set("".join(TEXT)) - set(" 12") | {"▁", "1", "2"})
    tokens = SPECIAL[:3] + [f"<0x{byte:02X}>" for byte in range(256)] + letters + words
    vocab = {token: i for i, token in enumerate(tokens)}
    assert len(vocab) == len(tokens) < VOCAB, len(vocab)
    known = set(letters + words)
    merges = [(word[:at], word[at:]) for word in words for at in range(1, len(word))
              if word[:at] in known and word[at:] in known]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, merges, byte_fallback=True, unk_token="<unk>",
                                                fuse_unk=True))
    tokenizer.add_special_tokens(SPECIAL)
    marks = [normalizers.Replace(" ", "▁")]
    if kind == "sentencepiece":
        marks.insert(0, normalizers.Prepend("▁"))
    tokenizer.normalizer = normalizers.Sequence(marks)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def make_tokenizer(kind, folder):
    spm = kind in ("sentencepiece", "gemma")
    inner = with_byte_fallback(kind) if spm else byte_level(kind)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        clean_up_tokenization_spaces=False)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


class Llama:
    """A model in llama.cpp; what it generates comes with all log probabilities."""

    def __init__(self, path, lora=None):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx, params.n_parallel, params.warmup, params.verbosity = 2048, 1, False, 0
        params.cpuparams.n_threads = 1
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        if lora:
            params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(lora), 1.0)]
        self.server = xllamacpp.Server(params)

    def log_probabilities(self, ids, shown):
        """Of the token after `ids`. llama.cpp leaves out tokens that are parts of characters, so it
        is made to take the one that is `shown`; what it gives are those before that."""
        answer = self.server.handle_completions(
            {"prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": VOCAB,
             "logit_bias": [[shown, 1000.0]], "cache_prompt": False})
        if "choices" not in answer:
            raise AssertionError(f"llama.cpp: {answer}")
        found = torch.full((VOCAB,), float("nan"))
        for each in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
            found[each["id"]] = each["logprob"]
        assert not found.isnan().any(), "llama.cpp does not give every token"
        return found

    def greedy(self, ids, count):
        """Tokens, special ones too, up to an end."""
        body = json.dumps({"prompt": ids, "n_predict": count, "temperature": 0, "return_tokens": True,
                           "cache_prompt": False}).encode()
        request = urllib.request.Request(self.server.listening_address + "/completion", body,
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))["tokens"]

    def ids(self, text, special):
        body = json.dumps({"content": text, "add_special": special}).encode()
        request = urllib.request.Request(self.server.listening_address + "/tokenize", body,
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request))["tokens"]


def check_numbers(what, llama, model, ids, shown, tolerance, greedy=True):
    """Ten tokens of llama.cpp's against the model's own log probabilities."""
    actual, ids = [], list(ids)
    for _ in range(NEW_TOKENS):
        actual.append(llama.log_probabilities(ids, shown))
        ids.append(actual[-1].argmax().item())
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    expected = logits.log_softmax(-1)[-1 - NEW_TOKENS:-1]
    worst = max(((a - e).abs().max() / e.abs().max()).item() for a, e in zip(actual, expected))
    assert worst <= tolerance, f"{what}: differs by {worst:.1e} of the largest value"
    assert not greedy or ids[-NEW_TOKENS:] == expected.argmax(-1).tolist(), f"{what}: other tokens"
    return worst


def check_ids(what, llama, tokenizer, spm):
    for text in PHRASES:
        # llama.cpp gives nothing for no text; SentencePiece's space before it is transformers'.
        if spm and text in ("", " ") or spm and "<|end|>" in text:
            continue
        for special in (False, True):
            expected = tokenizer(text, add_special_tokens=special)["input_ids"]
            actual = llama.ids(text, special)
            assert actual == expected, f"{what}: {text!r} is {actual}, not {expected}"


def check_lora(work, folder, base, model, targets, ids, shown, tolerance):
    import peft
    config = peft.LoraConfig(r=4, lora_alpha=6, target_modules=targets, task_type="CAUSAL_LM",
                             use_rslora="q_proj" in targets, init_lora_weights=False)
    adapted = peft.get_peft_model(model, config).eval()
    adapted.save_pretrained(work / "peft")
    focus("export", folder, "--adapter", work / "peft", "--gguf", work / "lora.gguf")
    worst = check_numbers("LoRA", Llama(base, work / "lora.gguf"), adapted, ids, shown, tolerance)
    with adapted.disable_adapter(), torch.no_grad():
        plain = adapted(torch.tensor([ids])).logits
    with torch.no_grad():
        effect = (adapted(torch.tensor([ids])).logits - plain).abs().max() / plain.abs().max()
    assert effect > 10 * tolerance, f"LoRA: its effect of {effect:.1e} is too small to see"
    return worst


def check_case(work, case, seed):
    config_class, values, kind, targets = case
    model = random_model(getattr(transformers, config_class)(**values), seed)
    folder = work / "hf"
    model.save_pretrained(folder)
    tokenizer = make_tokenizer(kind, folder)
    ids = torch.randint(4, 300, (24,)).tolist()
    shown = tokenizer.convert_tokens_to_ids("a")
    gelu = GELU_TABLE if config_class in ("GPT2Config", "GPTNeoXConfig", "Gemma2Config",
                                          "Gemma3TextConfig") else 0
    worst = {}
    for dtype, tolerance in TOLERANCE.items():
        path = work / f"{dtype}.gguf"
        focus("export", folder, "--gguf", path, "--dtype", dtype)
        llama = Llama(path)
        worst[dtype] = check_numbers(dtype, llama, model, ids, shown, max(tolerance, gelu))
        check_ids(dtype, llama, tokenizer, kind in ("sentencepiece", "gemma"))
    focus("export", folder, "--gguf", work / "q8_0.gguf", "--dtype", "q8_0")
    worst["q8_0"] = check_numbers("q8_0", Llama(work / "q8_0.gguf"), model, ids, shown, 0.1, False)
    worst["LoRA"] = check_lora(work, folder, work / "float32.gguf", model, targets, ids,
                               shown, max(TOLERANCE["float32"], gelu))
    return worst


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failed = 0
    chosen = sys.argv[2:] or CASES
    for name in chosen:
        seed = list(CASES).index(name) + 1
        with tempfile.TemporaryDirectory() as folder:
            try:
                worst = check_case(Path(folder), CASES[name], seed)
                print(f"{name:28} agrees, differences up to "
                      f"{', '.join(f'{x:.1e} ({kind})' for kind, x in worst.items())}", flush=True)
            except (AssertionError, Refused) as error:
                failed += 1
                print(f"{name:28} FAILED: {error}", flush=True)
    print(f"interop with llama.cpp, xllamacpp {xllamacpp.__version__}: {len(chosen) - failed} agree, "
          f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
