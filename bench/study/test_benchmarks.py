"""Tests of benchmarks.py: `python3 -m unittest` in bench/study/."""

import bz2
import json
import math
import pathlib
import sys
import tempfile
import unittest

import benchmarks

HERE = pathlib.Path(__file__)
PROGRAM = """#!{python}
import json, sys
words = sys.argv
asked = [json.loads(line) for line in open(words[words.index("--requests") + 1], encoding="utf-8")]
spec = words[words.index("--attention") + 1]
with open(words[words.index("--out") + 1], "w", encoding="utf-8") as file:
    for r in asked:
        longer = len(r["continuation"]) if spec == "dense" else -len(r["continuation"])
        file.write(json.dumps({{"log_likelihood": -20 + longer, "is_greedy": spec == "dense", "tokens": 2, "pairs": 10,
                               "pairs_touched": 0.0 if spec == "dense" else 0.3}}) + "\\n")
print("out.jsonl: 1 answers, 2 tokens, attention " + (spec if spec == "dense" else "soft, carried"))
"""


class Benchmarks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.data = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, *objects):
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(o if isinstance(o, str) else json.dumps(o) + "\n" for o in objects), encoding="utf-8")

    def items(self, task, **more):
        return benchmarks.read_task(task, self.data, **more)[1]

    def expect(self, task, *expected):
        keys = ("context", "choices", "right")
        self.assertEqual(self.items(task), [dict(zip(keys, one)) for one in expected])

    def test_hellaswag(self):
        self.write("hellaswag/hellaswag_val.jsonl",
                   {"activity_label": "Cooking", "ctx_a": "A cook [header] stirs.", "ctx_b": "HE then",
                    "endings": ["eats [step] it.", "runs."], "label": "1"},
                   {"activity_label": "Fox", "ctx": "It [title] runs", "endings": ["a", "b"], "label": 0},
                   {"query": "A fox:  It", "choices": ["ran", "flew"], "gold": 0})
        self.expect("hellaswag", ("Cooking: A cook stirs. He then", ["eats it.", "runs."], 1),
                    ("Fox: It. runs", ["a", "b"], 0), ("A fox: It", ["ran", "flew"], 0))

    def test_hellaswag_in_six_lines(self):
        (self.data / "hellaswag_val_full.txt.bz2").write_bytes(bz2.compress(b"Fox: it\r\n2\r\na\r\nb\r\nc\r\nd\r\n"))
        self.expect("hellaswag", ("Fox: it", ["a", "b", "c", "d"], 2))
        (self.data / "hellaswag_val_full.txt.bz2").write_bytes(bz2.compress(b"Fox: it\n2\na\nb\nc\n"))
        with self.assertRaisesRegex(SystemExit, "six for each item"):
            self.items("hellaswag")

    def test_arc(self):
        ai2 = [{"text": "so", "label": "A"}, {"text": "not", "label": "B"}]
        self.write("arc_easy.jsonl", {"question": {"stem": "Why?", "choices": ai2}, "answerKey": "B"},
                   {"question": "Why?", "choices": {"text": ["so", "not"], "label": ["1", "2"]}, "answerKey": "1"},
                   {"query": "Question: Who?", "choices": ["a", "b"], "gold": 1})
        self.expect("arc_easy", ("Question: Why?\nAnswer:", ["so", "not"], 1),
                    ("Question: Why?\nAnswer:", ["so", "not"], 0), ("Question: Who?\nAnswer:", ["a", "b"], 1))
        self.write("arc_easy.jsonl", {"question": {"stem": "Why?", "choices": ai2}, "answerKey": "C"})
        with self.assertRaisesRegex(SystemExit, "arc_easy.jsonl:1"):
            self.items("arc_easy")

    def test_piqa(self):
        self.write("piqa/valid.jsonl", {"goal": "Cut", "sol1": "saw", "sol2": "spoon"}, {"goal": "Eat", "sol1": "a", "sol2": "b"})
        self.write("piqa/valid-labels.lst", "0\n1\n")
        self.expect("piqa", ("Question: Cut\nAnswer:", ["saw", "spoon"], 0), ("Question: Eat\nAnswer:", ["a", "b"], 1))
        self.assertEqual(len(self.items("piqa", limit=1, prefix="text\n\n")), 1)
        self.assertEqual(self.items("piqa", prefix="text\n\n")[0]["context"], "text\n\nQuestion: Cut\nAnswer:")
        for labels, expected in (("0\n", "valid.jsonl:2"), ("0\n1\n1\n", "1 more labels"), ("0\n2\n", "valid.jsonl:2")):
            self.write("piqa/valid-labels.lst", labels)
            with self.assertRaisesRegex(SystemExit, expected):
                self.items("piqa")

    def test_lambada_and_truthfulqa(self):
        self.write("lambada_test.jsonl", {"text": "Once there was a fox"})
        self.expect("lambada", ("Once there was a", ["fox"], 0))
        self.write("truthfulqa/mc_task.json", json.dumps([
            {"question": "Who?", "mc1_targets": {"A fox.": 1, "Hens.": 0}},
            {"question": "Why?", "mc1_targets": {"choices": ["So.", "Not."], "labels": [0, 1]}}]))
        items = self.items("truthfulqa_mc1")
        self.assertEqual([(i["choices"], i["right"]) for i in items], [(["A fox.", "Hens."], 0), (["So.", "Not."], 1)])
        self.assertTrue(items[0]["context"].startswith("Q: What is human life"))
        self.assertTrue(items[0]["context"].endswith("Barcelona, Spain.\n\nQ: Who?\nA:"))

    def test_missing_tasks_are_named(self):
        for task, expected in (("mmlu", "unknown task mmlu"), ("piqa", "no valid.jsonl")):
            with self.assertRaisesRegex(SystemExit, expected):
                self.items(task)
        self.write("lambada_test.jsonl", "\n")
        with self.assertRaisesRegex(SystemExit, "has no items"):
            self.items("lambada")

    def test_requests_of_a_chat_begin_without_a_space(self):
        one = [{"context": "c", "choices": ["a"], "right": 0}]
        for task, chat, expected in (("piqa", False, " a"), ("piqa", True, "a"), ("lambada", True, " a")):
            self.assertEqual(json.loads(benchmarks.requests_of(task, one, chat))["continuation"], expected)

    def test_rows_of_a_comparison(self):
        program = self.data / "focus"
        program.write_text(PROGRAM.format(python=sys.executable), encoding="utf-8")
        program.chmod(0o755)
        self.write("arc_easy.jsonl", {"query": "Why?", "choices": ["a", "bbb"], "gold": 1},
                   {"query": "Who?", "choices": ["aa", "b"], "gold": 1})
        self.write("lambada_test.jsonl", {"text": "Once there"})
        for name, method in (("1f", "retrofit"), ("2f", "lora")):
            self.write(f"out/runs/{name}/config.yaml", f'method: {method}\nprecision: bf16\nbase: base.h5\ntokenizer: ""\n'
                       "threads: 0\ndata:\n  bos: always\n")
            self.write(f"out/runs/{name}/done.json", {"artifact": "elsewhere/focus.h5"})
        columns = {"seed": 1, "trainable_parameters": 7, "train_tokens": 9}
        self.write("out/compare.jsonl", {"run": "Focus, K=4", "hash": "1f", "method": "retrofit", **columns},
                   {"run": "LoRA", "hash": "2f", "method": "lora", **columns})
        sys.argv = ["benchmarks.py", str(program), str(self.data / "out"), "--data", str(self.data), "--out",
                    str(self.data / "rows.jsonl"), "--tasks", "arc_easy,lambada", "--run", "Focus, K=4", "dense,soft",
                    "--run", "LoRA", "dense"]
        benchmarks.main()
        rows = [json.loads(line) for line in (self.data / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
        self.assertEqual([(r["run"], r["task"], r["attention"], r["routing"]) for r in rows], [
            ("Focus, K=4", "arc_easy", "dense", "-"), ("Focus, K=4", "arc_easy", "soft", "carried"),
            ("Focus, K=4", "lambada", "dense", "-"), ("Focus, K=4", "lambada", "soft", "carried"),
            ("LoRA", "arc_easy", "dense", "-"), ("LoRA", "lambada", "dense", "-")])
        dense, soft, word, _, lora, _ = rows
        self.assertEqual((dense["acc"], dense["acc_error"]), (0.5, 0.5))
        self.assertEqual((soft["acc"], soft["same_choice"], soft["acc_against_dense"]), (0.5, 0.0, 0.0))
        self.assertEqual((soft["pairs_touched"], soft["items_inside"], dense["items_inside"]), (0.3, 0.0, 1.0))
        self.assertAlmostEqual(soft["log_prob_distance"], 5.5)
        self.assertAlmostEqual(word["last_word_perplexity"], math.exp(14))
        self.assertEqual((word["acc"], word["acc_norm"]), (1.0, None))
        self.assertEqual((lora["same_choice"], lora["train_tokens"]), (1.0, 9))


if __name__ == "__main__":
    unittest.main()
