"""Tokenizers as GGUF files hold them, and what the libraries that learned them make of texts."""

import io
import json
from dataclasses import dataclass, field

import gguf
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from words import lines

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type
TRAINED_CHARACTERS = 100_000

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+")  # fmt: skip
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")  # fmt: skip
# fmt: off
CASES = [
    "", " ", "  ", "     ", "\n", "\n\n", "\n\n\n\n\n", "\r\n", "\t", "a", " a", "a ", "  both sides  ",
    "Hello, world!", "It's they're WE'LL I'd can't 'twas ''double''",
    "line one\nline two\r\nline three\n\n\nafter blank lines\n", "tabs\tand\t\tmore   spaces    here",
    "1 12 123 1234 12345 3.14159 1,000,000 0x1F 2026-11-20", "x1y22z333",
    "UPPER lower CamelCase snake_case kebab-case", "naïve café Ångström 99 €", "cafe\u0301 decomposed",
    "Привет, мир!", "你好，世界。", "こんにちは", "안녕하세요", "مرحبا", "हिन्दी",
    "emoji 😀 👍🏽 end", "nbsp\u00a0em\u2003ideographic\u3000zero\u200bwidth",
    "“curly” ‘single’ — – …", "control\x01\x02\x7f chars", "a" * 70, "ab" * 40,
    " " * 33 + "x" + " " * 7, "!!!???...,,,;;;:::", "$100 #hash @user 50% ^&*",
    "def f(x):\n    return x ** 2  # comment\n", "½ fraction ² superscript Ⅷ roman",
    "mixed 中文English123", "\U0001d518\U0001d52b astral \U00010348", "\u2581 lower block \u2581\u2581",
    "I remember that she remembered; we remember.",
]
# fmt: on


@dataclass
class Vocabulary:
    keys: dict  # of tokenizer.ggml, in the types that real files use
    cases: list[dict] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.keys["tokens"])

    def write(self, writer: gguf.GGUFWriter):
        lists = {
            "scores": writer.add_token_scores,
            "token_type": writer.add_token_types,
            "tokens": writer.add_token_list,
            "merges": writer.add_token_merges,
        }
        for key, value in self.keys.items():
            name = f"tokenizer.ggml.{key}"
            if key in lists:
                lists[key](value)
            elif key == "chat_template":
                writer.add_chat_template(value)
            elif isinstance(value, bool):
                writer.add_bool(name, value)
            elif isinstance(value, int):
                writer.add_uint32(name, value)
            else:
                writer.add_string(name, value)


def without_vocabulary(size: int) -> Vocabulary:
    return Vocabulary({"model": "none", "tokens": [""] * size})


# ------------------------------------------------------------------------------- byte-level BPE


@dataclass
class ByteLevel:
    """What a value of tokenizer.ggml.pre stands for."""

    control: list  # tokens
    steps: list  # of pre-tokenization
    user: list = field(default_factory=list)  # tokens of the user
    unmerged: list = field(default_factory=list)  # words that no merges make
    padding: int = 0  # rows of the embedding beyond the vocabulary
    control_first: bool = False


def split_by(pattern: str) -> list:
    return [
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]


GPT2_STEP = pre_tokenizers.ByteLevel(add_prefix_space=False)
BYTE_LEVEL = {
    "gpt-2": ByteLevel(["<|endoftext|>"], [GPT2_STEP]),
    "llama-bpe": ByteLevel(
        ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"],
        split_by(LLAMA3),
        unmerged=["\u0120remember"],
    ),
    "qwen2": ByteLevel(
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        split_by(QWEN2),
        user=["<think>", "</think>"],
        padding=5,
    ),
    "smollm": ByteLevel(
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"],
        [pre_tokenizers.Digits(individual_digits=True), GPT2_STEP],
        control_first=True,
    ),
}


def learn_merges(kind: ByteLevel, seed: int, size: int) -> tuple[list, list]:
    """The words in the order of their ids, control tokens among them where they are first."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(kind.steps)
    others = len(kind.control + kind.user + kind.unmerged) + kind.padding
    trainer = trainers.BpeTrainer(
        vocab_size=size - others,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    trained.train_from_iterator(lines(seed, TRAINED_CHARACTERS), trainer)
    model = json.loads(trained.to_str())["model"]
    words = sorted(model["vocab"], key=model["vocab"].get)
    words += [word for word in kind.unmerged if word not in model["vocab"]]
    first = kind.control if kind.control_first else []
    return first + words, [tuple(pair) for pair in model["merges"]]


def real_tokenizer(pre: str, words: list, merges: list) -> Tokenizer:
    """The tokenizers library's with the steps that the name stands for."""
    kind = BYTE_LEVEL[pre]
    ids = {word: i for i, word in enumerate(words)}
    t = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=pre == "llama-bpe"))
    if pre == "qwen2":
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence(kind.steps)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(w, special=True, normalized=False) for w in kind.control])
    t.add_tokens([AddedToken(w, special=False, normalized=False) for w in kind.user])
    if pre == "llama-bpe":
        bos = kind.control[0]
        t.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, t.token_to_id(bos))]
        )
    return t


def special_keys(pre: str, control: list) -> dict:
    """control: ids. llama-bpe's file has no add_bos_token, like many: its name alone asks for it."""
    if pre == "gpt-2":
        return dict(bos_token_id=control[0], eos_token_id=control[0])
    if pre == "llama-bpe":
        return dict(bos_token_id=control[0], eos_token_id=control[2])
    bos = control[0 if pre == "qwen2" else 1]
    keys = dict(bos_token_id=bos, eos_token_id=control[2], padding_token_id=control[0])
    keys.update(add_bos_token=False, chat_template=CHAT)
    if pre == "smollm":
        keys.update(unknown_token_id=control[0], add_space_prefix=False)
    return keys


def byte_level(pre: str, seed: int, size: int) -> Vocabulary:
    kind = BYTE_LEVEL[pre]
    words, merges = learn_merges(kind, seed, size)
    t = real_tokenizer(pre, words, merges)
    tokens = words + [w for w in kind.control + kind.user if w not in words]
    assert [t.id_to_token(i) for i in range(len(tokens))] == tokens
    type_of = {w: CONTROL for w in kind.control} | {w: USER_DEFINED for w in kind.user}
    padding = [f"[PAD{len(tokens) + i}]" for i in range(kind.padding)]
    keys = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens + padding,
        "token_type": [type_of.get(w, NORMAL) for w in tokens] + [UNUSED] * kind.padding,
        "merges": [" ".join(pair) for pair in merges],
        **special_keys(pre, [t.token_to_id(w) for w in kind.control]),
    }
    a, z = kind.control[0], kind.control[-1]
    texts = CASES + [z, f"a{a}b {z} c{z}{a}", f"<|{a}", f"[PAD{len(tokens)}]"]
    if kind.user:
        begin, end = kind.user
        texts.append(f"{begin}x {end}\n{begin}{end}")
    return Vocabulary(keys, [byte_level_case(t, text) for text in texts])


def byte_level_case(t: Tokenizer, text: str) -> dict:
    ids = t.encode(text, add_special_tokens=False).ids
    decoded = t.decode(ids, skip_special_tokens=False)
    return dict(text=text, ids=ids, ids_special=t.encode(text).ids, decoded=decoded)


# ------------------------------------------------------------------------------- SentencePiece

GEMMA_USER = ["\n" * n for n in range(1, 5)] + ["\t"] + [" " * n for n in range(2, 9)]
GEMMA_USER += ["<b>", "</b>"]
GEMMA_SYMBOLS = [word.replace(" ", "\u2581") for word in GEMMA_USER]


def learn_pieces(gemma: bool, ids: dict, seed: int, size: int):
    """BPE with bytes: Llama 2's and Mistral's settings, or Gemma's."""
    model, options = io.BytesIO(), {}
    if gemma:
        options["user_defined_symbols"] = GEMMA_SYMBOLS
        options["control_symbols"] = ["<start_of_turn>", "<unused0>"]
    text = (line.strip("\n") for line in lines(seed, TRAINED_CHARACTERS) if line.strip())
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=text,
        model_writer=model,
        model_type="bpe",
        vocab_size=size,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=not gemma,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        character_coverage=0.98,
        num_threads=1,
        minloglevel=2,
        **ids,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def piece_in_file(sp, i: int, gemma: bool) -> tuple[str, float, int]:
    """Text, score and type, as the converter writes them."""
    piece, score, kind = sp.id_to_piece(i), sp.get_score(i), NORMAL
    if sp.is_byte(i):
        kind = BYTE
    elif sp.is_unknown(i):
        kind = UNKNOWN
    elif sp.is_control(i):
        kind = CONTROL
    elif gemma and piece in GEMMA_SYMBOLS:  # written as it is in a text
        piece, kind = piece.replace("\u2581", " "), USER_DEFINED
    if gemma and kind in (CONTROL, USER_DEFINED):  # added tokens
        score = -1000.0
    return piece, score, kind


def sentence_piece(name: str, seed: int, size: int) -> Vocabulary:
    gemma = name == "gemma"
    ids = dict(unk_id=0, bos_id=1, eos_id=2, pad_id=-1)
    if gemma:
        ids = dict(pad_id=0, eos_id=1, bos_id=2, unk_id=3)
    sp = learn_pieces(gemma, ids, seed, size)
    tokens, scores, kinds = zip(*[piece_in_file(sp, i, gemma) for i in range(sp.get_piece_size())])
    keys = {
        "model": "llama",
        "pre": "default",
        "tokens": list(tokens),
        "scores": list(scores),
        "token_type": list(kinds),
        "bos_token_id": ids["bos_id"],
        "eos_token_id": ids["eos_id"],
        "unknown_token_id": ids["unk_id"],
        "add_bos_token": True,
        "add_eos_token": False,
        "add_space_prefix": not gemma,
    }
    texts = CASES
    if gemma:
        keys["padding_token_id"] = ids["pad_id"]
        # SentencePiece finds its symbol of two spaces in pairs of this character too, others do not.
        texts = [text for text in CASES if "\u2581" not in text]
        texts += ["a<b>bold</b> <b> x", "\n<b>\n\n\n\n\n\n\n</b>\t\t"]
    return Vocabulary(keys, [sentence_piece_case(sp, ids["bos_id"], text) for text in texts])


def sentence_piece_case(sp, bos: int, text: str) -> dict:
    ids = sp.encode(text)
    return dict(text=text, ids=ids, ids_special=[bos, *ids], decoded=sp.decode(ids))
