"""Tests of tables.py: `python3 -m unittest` in bench/study/."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import tables

ROW = {
    "run": "groups", "seed": 1, "hash": "1f", "error": None, "split": "valid", "texts": "novel.txt", "tokens_scored": 1000,
    "context": 512, "stride": 256, "tokenizer": "bytes 00", "trainable_parameters": 4160, "attention": "hard k=1",
    "routing": "carried", "causal": True, "pairs_attended": 0.5, "perplexity": 10.0,
}


class Tables(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.rows = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, *rows):
        (self.rows / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def test_seeds_share_a_line(self):
        self.write("part.jsonl", ROW, {**ROW, "seed": 2, "perplexity": 12.0})
        lines = tables.part_table("part", self.rows)
        self.assertIn("| run | trained | attention | density | perplexity | seeds |", lines)
        self.assertIn("| groups | 4,160 | hard k=1, carried | 50.0 % | 11.000 (1.414) | 2 |", lines)

    def test_not_causal_is_labelled(self):
        self.assertEqual(tables.form_of({**ROW, "routing": "sequence", "causal": False}),
                         "hard k=1, sequence (not causal)")

    def test_a_failed_run_is_named(self):
        self.write("part.jsonl", {**ROW, "error": "no disk"})
        self.assertEqual(tables.part_table("part", self.rows), ["Failed: groups, seed 1: no disk"])

    def test_the_largest_group_by_step(self):
        self.write("part.jsonl", ROW)
        (self.rows / "1f").mkdir()
        log = [{"step": step, "largest_group": 0.5, "largest_group_layers": [0.25, 0.75]} for step in (60, 100)]
        self.write("1f/metrics.jsonl", *log)
        lines = tables.part_table("part", self.rows, self.rows)
        self.assertIn("| groups | 50.0 % / 75.0 % |", lines)

    def test_recall(self):
        (self.rows / "recall").mkdir()
        pairs = {"rows": [{"attention": "dense", "pairs_attended": 1.0}]}
        asked = {"recall": {"rows": [{"attention": "dense", "right": 0.75, "answers": 8}]}}
        self.write("recall/baselines.pairs.json", pairs)
        self.write("recall/baselines.keys_16.json", asked)
        lines = tables.recall_tables(tables.recall_rows(self.rows / "recall"))
        self.assertIn("|  | dense | 100.0 % | 75.0 |", lines)
        self.assertIn("| asked | | | 8 |", lines)

    def test_every_table_and_the_claims(self):
        self.write("ablations.jsonl", {**ROW, "run": "the paper's defaults", "attention": "soft", "largest_group": 0.25},
                   {**ROW, "run": "balance loss", "attention": "soft", "largest_group": 0.5})
        out = self.rows / "out"
        subprocess.run([sys.executable, tables.__file__, self.rows, "--out", out], check=True)
        self.assertEqual(sorted(path.name for path in out.iterdir()), ["ablations.md", "claims.md"])
        self.assertIn("**held (one seed)** | -0.2500 | 1 |  |", (out / "claims.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
