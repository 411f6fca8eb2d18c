"""What Hugging Face's tokenizers learns from a small text, for tests/data/tokenizers/bpe_trainer_test.cpp.

    python tests/golden/bpe_training/make_bpe_training.py

The committed file: tokenizers 0.23.3.

Writes trained.json beside this script: the documents, the options, the merges, and the ids of a
text.
"""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

DOCUMENTS = [
    "The cat sat on the mat. The bat sat on the hat; the rat ran at the cat, and that was that.\n",
    "She sells sea shells by the sea shore; the shells she sells are sea shells, I'm sure.\n\n\n",
    "aaaa aaaaa aaaaaa aaaaaaa abababab babababa abcabcabc bcabcabca cabcabcab 11 111 1111 2026\n",
    "na\u00efve caf\u00e9 na\u00efve caf\u00e9s, \u4f60\u597d\u4f60\u597d \u4f60\u597d, it's they're we'll it's\r\n\tit's  it's   it's\n",
]
VOCAB_SIZE, MIN_FREQUENCY = 380, 2
TEXT = "The naive cat's shells: aaaaaaaaa abcabc \u4f60\u597d caf\u00e9 20261\n<|endoftext|>she sat"

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=VOCAB_SIZE,
    min_frequency=MIN_FREQUENCY,
    special_tokens=["<|endoftext|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
)
tokenizer.train_from_iterator(DOCUMENTS, trainer)
trained = json.loads(tokenizer.to_str())
Path(__file__).with_name("trained.json").write_text(
    json.dumps(
        {
            "documents": DOCUMENTS,
            "vocab_size": VOCAB_SIZE,
            "min_frequency": MIN_FREQUENCY,
            "vocab": trained["model"]["vocab"],
            "merges": trained["model"]["merges"],
            "text": TEXT,
            "ids": tokenizer.encode(TEXT).ids,
        },
        indent=0,
    )
    + "\n",
    encoding="utf-8",
)
