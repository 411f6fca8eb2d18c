"""Tokenizers without a tokenizer.json as transformers reads them: SentencePiece models and GPT-2's
two files with added_tokens.json, tokenizer_config.json and special_tokens_map.json beside them.

    python tests/golden/make_configured_tokenizers.py    (transformers 5, sentencepiece)

writes tests/golden/tokenizers/configured_*: the files and cases.jsonl."""
import io, json, os, random, shutil
import sentencepiece
from transformers import AutoTokenizer

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
TEXT = ["The quick brown fox jumps over the lazy dog.", "A dog said hello to the fox, and then the fox ran away.",
        "Numbers like 12 and 345 stand here; so do words, words, words.", "Hello world, said the brown dog: hello!",
        "It is over now and the other one is here to say so."] * 4
CASES = ["", "Hello", " Hello", "  Hello  fox", "Hello</s>World", "<s>the fox</s> and the dog", "<unk>x", "a<s>b", "</s>", "</s> ",
         "<|user|>the dog<|end|>", "<|user|> the dog <|end|> said", "x <|user|> y", "<|user|><|end|>", "hello<tool>hello", "<tool> hello",
         "the  <mask>  fox", "the▁fox", "▁the", "日本 dog", "the\nfox\n\n</s>\n"]


def sentencepiece_model():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=out, model_type="bpe", vocab_size=330, byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True, bos_id=1, eos_id=2, unk_id=0,
        user_defined_symbols=["<tool>"], minloglevel=2)
    return out.getvalue()


def gpt2_files(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE()); t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(TEXT, trainers.BpeTrainer(vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                                    special_tokens=["<|endoftext|>"]))
    t.model.save(folder)


def token(content, special=True, **flags):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": special, **flags}


def make(name, files, config, added=None, special=None):
    folder = f"{HERE}/configured_{name}"
    shutil.rmtree(folder, ignore_errors=True); os.makedirs(folder)
    files(folder)
    for file, value in (("tokenizer_config.json", config), ("added_tokens.json", added), ("special_tokens_map.json", special)):
        if value is not None: json.dump(value, open(f"{folder}/{file}", "w"), indent=1)
    t = AutoTokenizer.from_pretrained(folder)
    with open(f"{folder}/cases.jsonl", "w") as out:
        for text in CASES:
            ids = t(text, add_special_tokens=False)["input_ids"]
            out.write(json.dumps({"text": text, "ids": ids, "ids_special": t(text)["input_ids"],
                                  "decoded": t.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)}) + "\n")


MODEL = sentencepiece_model()
sp = lambda folder: open(folder + "/tokenizer.model", "wb").write(MODEL)
decoder = {"330": token("<|user|>"), "331": token("<|end|>", rstrip=True), "332": token("<mask>", lstrip=True)}
make("llama", sp, {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": True, "added_tokens_decoder": decoder})
make("llama_legacy", sp, {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "legacy": True, "eos_token": "<|end|>",
                          "added_tokens_decoder": decoder})
make("llama_no_prefix", sp, {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": False, "add_prefix_space": False},
     added={"<|user|>": 330, "<|end|>": 331}, special={"additional_special_tokens": ["<|user|>"], "eos_token": {"content": "<|end|>"}})
make("sentencepiece", sp, {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True},
     added={"<|user|>": 330, "<|end|>": 331, "<mask>": 332})
make("gpt2", gpt2_files, {"tokenizer_class": "GPT2Tokenizer"}, added={"<|user|>": 320, "<|end|>": 321})
make("gpt2_prefix", gpt2_files, {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": True, "add_bos_token": True, "add_eos_token": True,
                                 "added_tokens_decoder": {"320": token("<|user|>"), "321": token("<mask>", special=False, lstrip=True)}})
