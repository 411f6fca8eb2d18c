"""Makes tests/golden/tokenizers/configured_NAME: tokenizers without a tokenizer.json.

    python tests/golden/tokenizers/make_configured.py [--out FOLDER]

The committed files: transformers 5.24.0 (which needs protobuf), tokenizers 0.23.3, sentencepiece
0.2.3.

SentencePiece models and GPT-2's two files, with added_tokens.json, tokenizer_config.json and
special_tokens_map.json beside them, as transformers reads them. cases.jsonl: text, ids (no special
tokens added), ids_special, decoded.
"""

import io
import json
import shutil
import sys
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "common"))
from golden_files import arguments

TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "A dog said hello to the fox, and then the fox ran away.",
    "Numbers like 12 and 345 stand here; so do words, words, words.",
    "Hello world, said the brown dog: hello!",
    "It is over now and the other one is here to say so.",
] * 4
# fmt: off
CASES = [
    "", "Hello", " Hello", "  Hello  fox", "Hello</s>World", "<s>the fox</s> and the dog", "<unk>x",
    "a<s>b", "</s>", "</s> ", "<|user|>the dog<|end|>", "<|user|> the dog <|end|> said",
    "x <|user|> y", "<|user|><|end|>", "hello<tool>hello", "<tool> hello", "the  <mask>  fox",
    "the▁fox", "▁the", "日本 dog", "the\nfox\n\n</s>\n",
]
# fmt: on


def write_sentence_piece(folder: Path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        model_type="bpe",
        vocab_size=330,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        bos_id=1,
        eos_id=2,
        unk_id=0,
        user_defined_symbols=["<tool>"],
        minloglevel=2,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())


def write_gpt2(folder: Path):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        special_tokens=["<|endoftext|>"],
    )
    t.train_from_iterator(TEXT, trainer)
    t.model.save(str(folder))


def token(content: str, special=True, **flags) -> dict:
    plain = dict(lstrip=False, normalized=False, rstrip=False, single_word=False)
    return {"content": content, **plain, "special": special, **flags}


def write_cases(folder: Path):
    t = AutoTokenizer.from_pretrained(folder)
    with open(folder / "cases.jsonl", "w") as out:
        for text in CASES:
            ids = t(text, add_special_tokens=False)["input_ids"]
            decoded = t.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            item = dict(text=text, ids=ids, ids_special=t(text)["input_ids"], decoded=decoded)
            out.write(json.dumps(item) + "\n")


DECODER = {
    "330": token("<|user|>"),
    "331": token("<|end|>", rstrip=True),
    "332": token("<mask>", lstrip=True),
}
LLAMA_ADDED = {"<|user|>": 330, "<|end|>": 331}
LLAMA_SPECIAL = {"additional_special_tokens": ["<|user|>"], "eos_token": {"content": "<|end|>"}}
GPT2_DECODER = {"320": token("<|user|>"), "321": token("<mask>", special=False, lstrip=True)}
# Name: what writes the vocabulary; tokenizer_config.json, added_tokens.json, special_tokens_map.json.
FOLDERS = {
    "llama": (
        write_sentence_piece,
        dict(tokenizer_class="LlamaTokenizer", add_bos_token=True, add_eos_token=True)
        | dict(added_tokens_decoder=DECODER),
        None,
        None,
    ),
    "llama_legacy": (
        write_sentence_piece,
        dict(tokenizer_class="LlamaTokenizer", add_bos_token=True, legacy=True, eos_token="<|end|>")
        | dict(added_tokens_decoder=DECODER),
        None,
        None,
    ),
    "llama_no_prefix": (
        write_sentence_piece,
        dict(tokenizer_class="LlamaTokenizerFast", add_bos_token=False, add_prefix_space=False),
        LLAMA_ADDED,
        LLAMA_SPECIAL,
    ),
    "sentencepiece": (
        write_sentence_piece,
        dict(tokenizer_class="PreTrainedTokenizerFast", add_bos_token=True),
        LLAMA_ADDED | {"<mask>": 332},
        None,
    ),
    "gpt2": (
        write_gpt2,
        dict(tokenizer_class="GPT2Tokenizer"),
        {"<|user|>": 320, "<|end|>": 321},
        None,
    ),
    "gpt2_prefix": (
        write_gpt2,
        dict(tokenizer_class="GPT2Tokenizer", add_prefix_space=True, add_bos_token=True)
        | dict(add_eos_token=True, added_tokens_decoder=GPT2_DECODER),
        None,
        None,
    ),
}
FILES = ("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json")


def main():
    args = arguments(__doc__.splitlines()[0], seed=0)
    for name, (write_vocabulary, *contents) in FOLDERS.items():
        folder = args.out / "tokenizers" / f"configured_{name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_vocabulary(folder)
        for file, content in zip(FILES, contents):
            if content is not None:
                (folder / file).write_text(json.dumps(content, indent=1))
        write_cases(folder)


main()
