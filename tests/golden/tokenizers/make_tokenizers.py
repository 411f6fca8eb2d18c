"""Makes tests/golden/tokenizers/NAME: small real tokenizers, and their ids of awkward texts.

    python tests/golden/tokenizers/make_tokenizers.py [--out FOLDER] [--seed N]

The committed files: tokenizers 0.23.3, sentencepiece 0.2.3.

A folder holds tokenizer.json or tokenizer.model, and cases.jsonl: text, ids (no special tokens
added), ids_special (with the post-processor's, where there is one), decoded.
"""

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from golden_files import arguments
from words import lines

CHARACTERS = 150_000
BYTE_LEVEL_SIZE, BYTE_FALLBACK_SIZE, SENTENCE_PIECE_SIZE = 700, 700, 900

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
# fmt: off
CASES = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", " a", "a ", "  leading and trailing  ", "Hello, world!",
    "Hello world", "It's they're WE'LL I'd can't 'quoted' ''double''",
    "the quick brown fox jumps over the lazy dog",
    "line one\nline two\r\nline three\n\n\nafter blank lines\n", "tabs\tand\t\tmore   spaces    here",
    "1 12 123 1234 12345 3.14159 1,000,000 0x1F 2026-11-20",
    "UPPER lower MiXeD CamelCase snake_case kebab-case", "naïve café Ångström coöperate",
    "cafe\u0301 vs caf\u00e9 (combining against composed)", "Grüße aus München, 99 €",
    "Привет, мир! Как дела?", "你好，世界。今天天气很好", "こんにちは世界 カタカナ", "안녕하세요 세계",
    "مرحبا بالعالم", "שלום עולם", "हिन्दी में नमस्ते", "ไทย ภาษา", "emoji 😀 👍🏽 👨‍👩‍👧‍👦 🇫🇷 end",
    "zero\u200bwidth\u200djoiner\ufeffbom", "nbsp\u00a0between\u2003em\u3000ideographic",
    "math ∑ ∫ √ ≤ ≥ ≠ ∞ π × ÷", "quotes “curly” ‘single’ — em – en … ellipsis",
    "control\x00\x01\x02\x7f chars", "html <b>bold</b> &amp; <|endoftext|> <s> </s>", "a" * 200,
    "ab" * 150, " " * 40 + "x" + " " * 7, "!!!???...,,,;;;:::",
    "$100 #hash @user 50% ^caret &and *star",
    "C:\\path\\to\\file https://example.com/?q=1&b=2#frag",
    "def f(x):\n    return x ** 2  # comment\n", '{"json": [1, 2.5, null, true], "k": "v\\n"}',
    "ﬁ ligature ½ fraction ² superscript ① Ⅷ roman Ａ１ wide", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 astral 𐍈 gothic",
    "word\u0301\u0302\u0303 stacked marks", "mixed 中文English123混合",
    "<|im_start|>user\nhi<|im_end|>\n", " <|endoftext|> <|endoftext|>x<|endoftext|>",
]
# fmt: on
# What normalizes sentencepiece_bpe: code points, and those that they become.
RULES = ["FB01\t66 69", "2460\t31", "65 301\tE9", "A0\t20", "200B\t", "FF21\tC4", "2026\t2E 2E 2E"]


def special(token: str, **flags) -> AddedToken:
    return AddedToken(token, special=True, normalized=False, **flags)


END = special("<|endoftext|>")


def write_cases(folder: Path, encode, decode, encode_special=None):
    with open(folder / "cases.jsonl", "w", encoding="utf-8") as file:
        for text in CASES:
            ids = encode(text)
            item = dict(text=text, ids=ids, decoded=decode(ids))
            if encode_special:
                item["ids_special"] = encode_special(text)
            file.write(json.dumps(item) + "\n")


def write_tokenizer(folder: Path, t: Tokenizer):
    folder.mkdir(parents=True, exist_ok=True)
    t.save(str(folder / "tokenizer.json"), pretty=False)
    write_cases(
        folder,
        encode=lambda text: t.encode(text, add_special_tokens=False).ids,
        decode=lambda ids: t.decode(ids, skip_special_tokens=False),
        encode_special=lambda text: t.encode(text).ids,
    )


def add_bos(t: Tokenizer, bos: str):
    t.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A",
        pair=f"{bos} $A {bos} $B",
        special_tokens=[(bos, t.token_to_id(bos))],
    )


def byte_level(texts: list, tokens: list, pattern: str = "", ignore_merges=False) -> Tokenizer:
    """Byte-level BPE, split by GPT-2's pattern or another."""
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pattern:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        t.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=BYTE_LEVEL_SIZE,
        special_tokens=tokens,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    t.train_from_iterator(texts, trainer)
    return t


def llama3_style(texts: list) -> Tokenizer:
    bos = "<|begin_of_text|>"
    t = byte_level(texts, [special(bos), END], LLAMA3, ignore_merges=True)
    add_bos(t, bos)
    return t


def qwen2_style(texts: list) -> Tokenizer:
    turns = [special("<|im_start|>"), special("<|im_end|>", rstrip=True)]
    t = byte_level(texts, [END, *turns], QWEN2)
    t.normalizer = normalizers.NFC()
    return t


def llama2_style(texts: list) -> Tokenizer:
    """Characters, with bytes for those that the vocabulary lacks."""
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    t.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=BYTE_FALLBACK_SIZE,
        special_tokens=[special(token) for token in ("<unk>", "<s>", "</s>")]
        + [AddedToken(f"<0x{i:02X}>", normalized=False, special=False) for i in range(256)],
        show_progress=False,
        max_token_length=12,
    )
    t.train_from_iterator([line.replace(" ", " ▁")[:400] for line in texts], trainer)
    # A saved Llama 2 has the three special tokens alone as added ones; bytes are plain vocabulary.
    saved = json.loads(t.to_str())
    saved["added_tokens"] = [a for a in saved["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(saved))
    add_bos(t, "<s>")
    return t


def write_sentence_piece(folder: Path, texts: list, kind: str, **options):
    folder.mkdir(parents=True, exist_ok=True)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line.strip() for line in texts if line.strip()),
        model_writer=model,
        model_type=kind,
        vocab_size=SENTENCE_PIECE_SIZE,
        byte_fallback=True,
        minloglevel=2,
        num_threads=1,
        character_coverage=0.9995,
        hard_vocab_limit=False,
        **options,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    sp = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    write_cases(folder, encode=sp.encode, decode=sp.decode)


def main():
    args = arguments(__doc__.splitlines()[0], seed=20261126)
    out, texts = args.out.resolve() / "tokenizers", lines(args.seed, CHARACTERS)
    write_tokenizer(out / "gpt2_style", byte_level(texts, [END]))
    write_tokenizer(out / "llama3_style", llama3_style(texts))
    write_tokenizer(out / "qwen2_style", qwen2_style(texts))
    write_tokenizer(out / "llama2_style", llama2_style(texts))
    write_sentence_piece(out / "sentencepiece_unigram", texts, "unigram")  # normalized by nmt_nfkc
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        Path("rules.tsv").write_text("\n".join(RULES) + "\n")  # the model holds the name
        folder = out / "sentencepiece_bpe"
        write_sentence_piece(folder, texts, "bpe", normalization_rule_tsv="rules.tsv")
    write_sentence_piece(
        out / "sentencepiece_identity",
        texts,
        "bpe",
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        split_digits=True,
    )


main()
