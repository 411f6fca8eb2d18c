"""The Python binding of Hugging Face's tokenizers on one thread: the time to encode one text.

Of encode() and encode_batch_fast(), which leaves offsets out, the faster one counts. GPT-2's two
files are put together here as transformers does. Prints one JSON object on one line.
"""

import argparse
import json
import lzma
import os
import resource
import statistics
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before the library is loaded
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402


def loaded(path):
    if path.is_dir():
        vocab = json.loads((path / "encoder.json").read_text(encoding="utf-8"))
        lines = (path / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
        merges = [tuple(line.split(" ")) for line in lines if line]
        made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges))
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.add_special_tokens(["<|endoftext|>"])
        return made
    data = path.read_bytes()
    if path.suffix == ".xz":
        data = lzma.decompress(data)
    return tokenizers.Tokenizer.from_str(data.decode("utf-8"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    tokenizer = loaded(options.tokenizer)
    text = options.text.read_bytes().decode("utf-8")

    def encode():
        return tokenizer.encode(text, add_special_tokens=False)

    def encode_fast():
        return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0]

    times = {}
    for way in (encode, encode_fast):
        tokens = len(way().ids)
        times[way] = []
        for _ in range(options.repeats):
            begin = time.perf_counter()
            way()
            times[way].append(1e3 * (time.perf_counter() - begin))
    best = min(times, key=lambda way: min(times[way]))
    print(
        json.dumps(
            {
                "name": f"tokenizers {best.__name__}",
                "tokens": tokens,
                "ms_min": min(times[best]),
                "ms_median": statistics.median(times[best]),
                "tokens_per_second": 1e3 * tokens / min(times[best]),
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "libraries": {"tokenizers": tokenizers.__version__},
            }
        )
    )


if __name__ == "__main__":
    main()
