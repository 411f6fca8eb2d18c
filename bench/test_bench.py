"""Tests of the scripts that measure and of the table they make: `python3 -m unittest` in bench/."""

import argparse
import json
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import comparison
import machine
import measure
import results
import rows

COMMON = {
    "date": "2026-01-02T03:04:05Z",
    "commit": "abc1234",
    "machine": {"cpu": "Some CPU", "cores": 2},
    "threads": 2,
    "build": {"isa": "avx2", "compiler": "GNU 12.2.0"},
    "quick": False,
}


def record(work, ours, peer, disturbed=False, **more):
    sides = [
        {"name": "focus", "ms_min": ours, "ms_median": 2 * ours, "peak_rss_mib": 10.0},
        {"name": "other", "ms_min": peer, "ms_median": peer, "peak_rss_mib": 20.0},
    ]
    return {
        **COMMON,
        "work": work,
        "sides": sides,
        "disturbed": disturbed,
        "foreign_percent": 37.0 if disturbed else 0.5,
        **more,
    }


def run_of(stdout="", foreign=0.0, wall=10.0):
    return machine.Run(0, stdout, "", wall, foreign, 12.5)


class Compared(unittest.TestCase):
    def test_with_the_newest_undisturbed_record_of_the_same_kind_of_processor(self):
        now = {**COMMON, **record("a", 2.0, 4.0)}
        other = {**record("a", 1.0, 4.0), "machine": {"cpu": "Another CPU", "cores": 2}}
        known = [
            {**record("a", 8.0, 9.0), "commit": "old"},
            {**record("a", 3.0, 9.0), "commit": "before"},
            record("b", 1.0, 9.0),
            record("a", 1.0, 9.0, disturbed=True),
            other,
        ]
        self.assertEqual(results.before(now, known)["commit"], "before")
        line = results.compared(now, results.before(now, known))
        self.assertIn("at before, 2026-01-02", line)
        self.assertIn("now 1.50 times as fast", line)

    def test_nothing_to_compare_with(self):
        now = {**COMMON, **record("a", 2.0, 4.0)}
        self.assertIsNone(results.before(now, [record("b", 1.0, 2.0)]))
        self.assertIn("nothing to compare", results.compared(now, None))
        self.assertIn("disturbed", results.compared({**now, "disturbed": True}, now))


class Quiet(unittest.TestCase):
    def test_others_may_take_a_few_percent(self):
        self.assertFalse(run_of(foreign=0.3).disturbed)
        self.assertTrue(run_of(foreign=0.5).disturbed)
        self.assertAlmostEqual(run_of(foreign=0.5).foreign_percent, 5.0)

    def test_a_short_run_may_lose_a_few_ticks(self):
        self.assertFalse(run_of(foreign=0.03, wall=0.1).disturbed)

    def test_run_reports_what_the_process_did(self):
        program = "import os, sys; print(os.environ['GREETING']); sys.exit(3)"
        run = machine.run([sys.executable, "-c", program], {"GREETING": "hello"})
        self.assertEqual((run.status, run.stdout), (3, "hello\n"))
        self.assertGreater(run.peak_rss_mib, 1)
        self.assertGreater(run.wall_seconds, 0)


class Figures(unittest.TestCase):
    def test_google_benchmark(self):
        case = {"run_type": "iteration", "time_unit": "ms", "pairs": 55.0}
        document = {
            "context": {"isa": "avx2", "compiler": "GNU 12.2.0", "version": "0.1.0"},
            "benchmarks": [
                {**case, "real_time": 3.0, "GFLOP/s": 10.0},
                {**case, "real_time": 1.0, "GFLOP/s": 30.0},
                {**case, "real_time": 2.0, "GFLOP/s": 15.0},
                {"run_type": "aggregate", "time_unit": "ms", "real_time": 0.1},
            ],
        }
        figures = comparison.read_google_benchmark(run_of(json.dumps(document)))
        self.assertEqual((figures["ms_min"], figures["ms_median"]), (1.0, 2.0))
        self.assertEqual((figures["gflops"], figures["pairs"]), (30.0, 55.0))

    def test_a_case_that_is_not_there(self):
        with self.assertRaisesRegex(ValueError, "no case"):
            comparison.read_google_benchmark(run_of('{"context": {}, "benchmarks": []}'))

    def test_rounds_are_pooled(self):
        with tempfile.TemporaryDirectory() as folder:
            counter = Path(folder) / "rounds"
            program = (
                f"p = {str(counter)!r}; open(p, 'a').write('x'); n = len(open(p).read());"
                "print('{\"ms_min\": %d, \"ms_median\": %d, \"peak_rss_mib\": 5, \"pairs\": 8}'"
                " % (10 - n, 20 - n))"
            )
            slow = '{"ms_min": 30, "ms_median": 40, "peak_rss_mib": 6, "pairs": 24}'
            sides = [
                comparison.Side(
                    name, [sys.executable, "-c", code], lambda run: json.loads(run.stdout)
                )
                for name, code in (("focus", program), ("other", f"print('{slow}')"))
            ]
            options = argparse.Namespace(rounds=3, tries=1, wait=0)
            row = comparison.Row("soft", "some work", sides, ideal_from_pairs=True)
            measured = measure.measure_row(row, options)
        ours, other = measured["sides"]
        self.assertEqual((ours["ms_min"], ours["ms_median"]), (7, 18))
        self.assertEqual((other["ms_min"], other["ms_median"]), (30, 40))
        self.assertEqual(measured["ideal_ratio"], 3)

    def test_what_fails_is_named(self):
        line = '{"ms_min": 1, "ms_median": 1}'
        good = comparison.Side(
            "good", [sys.executable, "-c", f"print('{line}')"], lambda run: json.loads(run.stdout)
        )
        failing = [sys.executable, "-c", "import sys; sys.exit('no torch')"]
        bad = comparison.Side("bad", failing, None)
        options = argparse.Namespace(rounds=2, tries=1, wait=0)
        why = "bad: status 1: no torch"
        with self.assertRaisesRegex(measure.MeasurementError, why):
            measure.measure_row(comparison.Row("soft", "some work", [bad, good]), options)
        measured = measure.measure_row(comparison.Row("soft", "some work", [good, bad]), options)
        self.assertEqual([side["name"] for side in measured["sides"]], ["good"])
        self.assertEqual(measured["not_measured"], {"bad": why})
        absent = comparison.Side("absent", ["/no/such/program"], None)
        with self.assertRaisesRegex(measure.MeasurementError, "absent: .*/no/such/program"):
            measure.measure_row(comparison.Row("soft", "some work", [absent]), options)

    def test_models_of_different_sizes_are_no_comparison(self):
        measure.check_same_size({"a": {"parameters": 1000}, "b": {"parameters": 1009}, "c": {}})
        with self.assertRaisesRegex(measure.MeasurementError, "different sizes"):
            measure.check_same_size({"a": {"parameters": 1000}, "b": {"parameters": 1011}})


class Table(unittest.TestCase):
    def test_ratios(self):
        self.assertEqual(results.ratios(record("w", 2.0, 6.0)), [(3.0, 1.5)])

    def test_a_line_has_a_cell_for_each_heading(self):
        text = results.table([record("w", 2.0, 6.0, ideal_ratio=2.5), record("d", 1, 1, True)])
        lines = [line for line in text.splitlines() if line.startswith("|")]
        self.assertEqual(len(lines), 4)
        self.assertEqual({line.count("|") for line in lines}, {9})
        self.assertIn("| w | 2.00 / 4.00 | other | 6.00 / 6.00 | 3.00 / 1.50 | 2.50 |", text)

    def test_a_disturbed_record_is_not_quoted(self):
        disturbed = record("w", 789.0, 456.0, disturbed=True)
        for text in (results.table([disturbed]), "\n".join(results.lines_of(disturbed))):
            self.assertIn("others took 37 % of a core", text)
            self.assertNotIn("789", text)
            self.assertNotIn("456", text)

    def test_the_newest_undisturbed_record_stands(self):
        first, second = record("w", 1.0, 2.0), record("w", 3.0, 4.0)
        disturbed = record("w", 5.0, 6.0, disturbed=True)
        self.assertEqual(results.newest([first, second, disturbed]), [second])
        self.assertEqual(results.newest([disturbed, first]), [first])

    def test_machines_do_not_mix(self):
        other = {**record("w", 7.0, 8.0), "machine": {"cpu": "Another CPU", "cores": 8}}
        text = results.table([record("w", 1.0, 2.0), other])
        self.assertEqual(text.count("\n## "), 2)

    def test_history_round_trip(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "results"
            for item in (record("w", 1.0, 2.0), record("v", 3.0, 4.0)):
                results.append(folder, item)
            self.assertEqual([r["work"] for r in results.read(folder)], ["w", "v"])
            results.render(folder)
            self.assertIn("| v |", (folder / results.TABLE).read_text(encoding="utf-8"))
            with open(folder / results.HISTORY, "a", encoding="utf-8") as file:
                file.write("{torn\n")
            with self.assertRaisesRegex(ValueError, "line 3"):
                results.read(folder)


class Gemm(unittest.TestCase):
    def test_each_product_is_a_record_with_its_peers(self):
        settings = comparison.Settings(threads=3, repeats=1, quick=True)
        product = {"product": "nn", "shape": "1 x 2 x 3", "peers": [{"name": "focus"}]}
        with unittest.mock.patch.object(measure, "measured") as measured:
            measured.return_value = (run_of(), {"products": [product]})
            (taken,) = measure.measure_gemm(settings, argparse.Namespace())
        self.assertEqual(measured.call_args.args[0].environment["OMP_NUM_THREADS"], "3")
        self.assertEqual(taken["work"], "nn, 1 x 2 x 3 (m x k x n)")
        self.assertEqual(taken["sides"], product["peers"])


class Words(unittest.TestCase):
    def test_unknown_word(self):
        with self.assertRaises(SystemExit):
            measure.parsed(["dence"])

    def test_every_row_says_what_it_is(self):
        settings = comparison.Settings(threads=2, repeats=3, quick=False)
        works = [row.work for group in rows.GROUPS.values() for row in group(settings)]
        self.assertEqual(len(works), len(set(works)))


if __name__ == "__main__":
    unittest.main()
