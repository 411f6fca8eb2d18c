"""Tests of verdicts.py: `python3 -m unittest` in bench/study/."""

import math
import pathlib
import tomllib
import unittest

import verdicts

CLAIM = {"claim": "groups are better", "less": {"run": "focus", "attention": "soft"},
         "than": {"run": "full", "attention": "dense"}, "on": "target"}
HERE = pathlib.Path(__file__).parent


def row(run, seed, attention, nats, **more):
    return {"run": run, "seed": seed, "split": "target", "attention": attention,
            "routing": "carried" if attention == "soft" else None, "perplexity": math.exp(nats), **more}


class Verdicts(unittest.TestCase):
    def verdict(self, differences, margin=0):
        rows = [row("full", seed, "dense", 2) for seed, _ in enumerate(differences)]
        rows += [row("focus", seed, "soft", 2 + d) for seed, d in enumerate(differences)]
        return verdicts.outcome({**CLAIM, "margin": margin}, rows)["verdict"]

    def test_equal_seeds_are_paired(self):
        done = verdicts.outcome(CLAIM, [row("full", 1, "dense", 2), row("full", 2, "dense", 3),
                                        row("focus", 2, "soft", 2.8), row("focus", 1, "soft", 1.9)])
        self.assertAlmostEqual(done["mean"], -0.15)
        self.assertAlmostEqual(done["half_width"], 12.706 * 0.05)  # deviation 0.1 / sqrt(2), over sqrt(2)
        self.assertEqual(done["verdict"], "undecided")

    def test_a_verdict_needs_the_whole_interval(self):
        self.assertEqual(self.verdict([-0.1, -0.101]), "held")
        self.assertEqual(self.verdict([0.1, 0.101]), "not held")
        self.assertEqual(self.verdict([0, 0]), "not held")
        self.assertEqual(self.verdict([0.1, 0.101], 0.2), "held")
        self.assertEqual(self.verdict([-0.1, -0.101], -0.2), "not held")

    def test_a_single_seed_is_paired_with_every_seed_of_the_other(self):
        rows = [row("full", 1, "dense", 2, nats_of_documents=[1.0, 3.0]),
                row("focus", 1, "soft", 1.9, nats_of_documents=[0.5, 3.5]),
                row("focus", 2, "soft", 1.7, nats_of_documents=[0.7, 3.1])]
        done = verdicts.outcome(CLAIM, rows)
        self.assertAlmostEqual(done["mean"], -0.2)
        for value, expected in zip(done["by_text"], [-0.4, 0.3], strict=True):
            self.assertAlmostEqual(value, expected)

    def test_other_columns_tasks_and_questions(self):
        rows = [row("full", 1, "dense", 2, kept_far=0.5), row("focus", 1, "soft", 9, kept_far=0.5)]
        self.assertEqual(verdicts.outcome({**CLAIM, "figure": "kept_far", "margin": 0.1}, rows)["verdict"], "held")
        for run, attention, share in (("full", "dense", 0.5), ("focus", "soft", 0.4)):
            same = {"run": run, "seed": 1, "attention": attention}
            rows += [{**same, "task": "piqa", "acc": share}, {**same, "questions": "recall", "to": None, "right": share},
                     {**same, "questions": "recall", "to": 32, "right": 0}]
        for on, figure in (("piqa", "acc"), ("recall", "right")):
            self.assertAlmostEqual(verdicts.outcome({**CLAIM, "on": on, "figure": figure}, rows)["mean"], -0.1)
        without = verdicts.outcome({**CLAIM, "on": "recall", "figure": "acc"}, rows)
        self.assertEqual(without["verdict"], "not measured")
        self.assertTrue(without["asked"].endswith("; rows without acc"))

    def test_missing_and_ambiguous_rows_are_named(self):
        rows = [row("full", 1, "dense", 2)]
        self.assertTrue(verdicts.outcome(CLAIM, rows)["asked"].endswith("; no row focus, soft"))
        rows += [row("focus", 1, "soft", 2), {**row("focus", 1, "soft", 1), "routing": "sequence"}]
        self.assertTrue(verdicts.outcome(CLAIM, rows)["asked"].endswith("; several rows are soft: add routing"))
        named = {**CLAIM, "less": {**CLAIM["less"], "routing": "sequence"}}
        self.assertIn("**held (one seed)**", verdicts.line("part", named, rows))
        untestable = verdicts.line("part", {"claim": "it scales", "not_testable": "too large"}, [])
        self.assertIn("**not testable here** |  |  |  | part, too large |", untestable)

    def test_the_recorded_claims_are_whole(self):
        for path in (HERE / "claims").rglob("*.toml"):
            for claim in tomllib.loads(path.read_text(encoding="utf-8"))["claims"]:
                self.assertIn("claim", claim, path)
                self.assertTrue("not_testable" in claim or {"less", "than"} <= claim.keys(), claim["claim"])
                self.assertLessEqual(claim.keys(), {"claim", "claimed", "less", "than", "on", "figure", "margin",
                                                    "not_testable"}, claim["claim"])

    def test_recorded_verdicts_of_the_real_model(self):
        recorded = (HERE / "real" / "claims.md").read_text(encoding="utf-8").splitlines()
        self.assertEqual(verdicts.verdicts(HERE / "claims" / "real", HERE / "real"), recorded[9:])


if __name__ == "__main__":
    unittest.main()
