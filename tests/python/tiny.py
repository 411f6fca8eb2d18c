"""A small random model, made by the module itself."""

import sys
import tempfile
from pathlib import Path

try:
    import focus_attention
except ModuleNotFoundError as error:
    if error.name != "numpy":
        raise
    print("skipped: the module needs numpy (python3-numpy)")
    sys.exit(77)

TEXT = "".join(f"the fox went into wood number {i} and saw {i % 7} hens there\n" for i in range(120))
GROUPS = {"num_groups": 4, "num_selected_groups": 2, "local_window": 4, "block": 4, "context": 64, "tokens": 512}


class Small:
    """A folder with a text and a model, kept for all tests of a process."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        self.text = self.folder / "text.txt"
        self.text.write_text(TEXT, encoding="utf-8")
        self.data = {"train": [self.text], "context": 64, "batch": 2, "cache_dir": self.folder / "cache"}
        self.trained = focus_attention.train(
            method="scratch", tokenizer="bytes", steps=4, out=self.folder / "base", progress=False, eval_every=2,
            log_every=1, model={"hidden_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 512},
            data={**self.data, "valid": [self.text]})
        self.base = Path(self.trained.artifact)

    def load(self, **options):
        return focus_attention.load(self.base, **options)
