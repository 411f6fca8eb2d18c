"""The Python module: python3 module_test.py, with FOCUS_LIBRARY and PYTHONPATH set."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import unittest
import unittest.mock
from pathlib import Path

from tiny import GROUPS, TEXT, Small  # first: it ends where numpy is missing

import focus_attention
import numpy as np
from focus_attention import FocusError

PROGRAM = os.environ.get("FOCUS_PROGRAM")
small = Small()


def program(*words):
    done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Models(unittest.TestCase):
    def setUp(self):
        self.model = small.load()

    def tearDown(self):
        self.model.close()

    def refused(self, pattern, error=FocusError):
        return self.assertRaisesRegex(error, pattern)

    def test_says_what_it_is(self):
        info = self.model.info
        self.assertEqual((info.hidden_size, info.num_hidden_layers, info.tokenizer), (32, 2, "bytes"))
        self.assertEqual(info.to_dict()["vocab_size"], info.vocab_size)
        self.assertIn("<td>bytes</td>", info._repr_html_())
        self.assertIn("hidden_size=32", repr(info))
        self.assertIn("model.h5", repr(self.model))
        self.assertEqual(focus_attention.machine()["version"], focus_attention.__version__)

    def test_a_closed_model_raises(self):
        with small.load() as model:
            pass
        with self.refused("closed|NULL"):
            model.encode("a")
        model.close()  # nothing more

    def test_tokens(self):
        ids = self.model.encode("häns\0!")
        self.assertEqual((ids.dtype, ids.size), (np.int32, len("häns\0!".encode())))
        self.assertEqual(self.model.decode(ids), "häns\0!")
        self.assertEqual(self.model.encode("").size, 0)
        self.assertEqual(self.model.decode([]), "")
        with self.refused("id"):
            self.model.decode([999999])

    def test_a_million_tokens_are_an_array_without_a_list(self):
        text = TEXT * (1_000_000 // len(TEXT) + 1)
        ids = self.model.encode(text)
        self.assertGreaterEqual(ids.size, 1_000_000)
        self.assertIsInstance(ids.base, focus_attention._library.Value)  # shown where the library has them
        self.assertEqual(self.model.decode(ids), text)

    def test_logits_hidden_states_and_log_probs_agree(self):
        ids = self.model.encode(TEXT[:60])
        logits = self.model.logits(ids)
        self.assertEqual(logits.shape, (60, self.model.info.vocab_size))
        np.testing.assert_array_equal(self.model.logits(list(ids), first=50), logits[50:])
        self.assertEqual(self.model.hidden_states(ids, first=59).shape, (1, 32))
        x = logits.astype(np.float64)
        log_softmax = x - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)) - x.max(1, keepdims=True)
        np.testing.assert_allclose(self.model.log_probs(ids), log_softmax[np.arange(59), ids[1:]], atol=2e-5)

    def test_arrays_outlive_model_and_value(self):
        logits = small.load().logits([1, 2, 3])
        np.testing.assert_array_equal(logits, self.model.logits([1, 2, 3]))

    def test_bad_ids(self):
        for bad in ([1.5], [[1]], "ab", [None]):
            with self.refused("ids", TypeError):
                self.model.logits(bad)
        for bad in ([-1], [2**31]):
            with self.refused("ids", ValueError):
                self.model.logits(bad)
        with self.refused("at least one"):
            self.model.logits([])
        with self.refused("positions"):
            self.model.logits([1] * 513)
        with self.refused("below 2"):
            self.model.logits([1, 2], first=2)
        with self.refused("first", ValueError):
            self.model.logits([1, 2], first=-1)

    def test_bad_settings(self):
        with self.refused("did you mean context"):
            self.model.perplexity(TEXT, contxt=64)
        with self.refused("nan|Out of range", ValueError):
            self.model.perplexity(TEXT, context=float("nan"))
        with self.refused("object", TypeError):
            self.model.perplexity(TEXT, context=object())
        with self.refused("zero byte", ValueError):
            self.model.perplexity("a\0b")
        with self.refused("expected a str or a path", TypeError):
            self.model.perplexity([1])
        with self.refused("nowhere"):
            self.model.perplexity(Path("/nowhere"))
        deep = []
        for _ in range(700):
            deep = [deep]
        with self.refused("nested deeper"):
            self.model.complete("a", stop=deep)
        with self.refused("role"):
            self.model.chat_prompt(["x"])
        with self.refused("summary"):
            self.model.attention = "summary:2"
        with self.refused("nowhere.gguf"):
            focus_attention.load("/nowhere.gguf")

    def test_perplexity_is_that_of_the_program(self):
        found = self.model.perplexity(small.text, context=64, stride=32)
        self.assertEqual(float(found), found.perplexity)
        if PROGRAM:
            out = small.folder / "eval.json"
            program("eval", small.base, "--text", small.text, "--context", 64, "--stride", 32, "--json", out)
            self.assertEqual(json.loads(out.read_text())["rows"][0]["perplexity"], found.perplexity)

    def test_a_result_that_goes_nowhere_is_refused_before_the_work(self):
        pieces = []
        tell = focus_attention._library.Callback(pieces.append)
        with self.refused("result"):
            focus_attention._library.call("model_generate", self.model._handle, focus_attention._library.ids_of([1]), b"",
                                          tell.c, None, None)
        self.assertEqual(pieces, [])

    def test_groups(self):
        fit = self.model.fit(small.text, progress=False, **GROUPS)
        self.assertEqual((fit.num_groups, fit.context), (4, 64))
        rows = self.model.evaluate(TEXT[:2000], ["dense", "summary:1", "summary:4"], context=64, against="dense")
        self.assertEqual([row.attention for row in rows][0], "dense")
        self.assertLess(rows[1].pairs_attended, rows[2].pairs_attended)
        self.assertLess(rows[2].kl, 1e-6)
        self.assertIn("<td>dense</td>", rows._repr_html_())
        self.model.attention = "summary:1"
        self.assertEqual(self.model.attention, "summary:1")
        self.assertEqual(self.model.perplexity(TEXT[:2000], context=64, against="dense").kl, rows[1].kl)
        groups = self.model.groups(TEXT[:2000], context=64)
        self.assertEqual((groups.num_groups, groups.grouping, groups.layers), (4, "keys", 2))
        saved = small.folder / "keys.h5"
        self.model.save_adapter(saved)
        other = small.load(adapters=saved)
        other.attention = "summary:1"
        ids = self.model.encode(TEXT[:100])
        np.testing.assert_array_equal(other.logits(ids), self.model.logits(ids))
        self.model.export(small.folder / "exported", format="adapter", overwrite=True)
        self.assertTrue((small.folder / "exported" / "focus_config.json").exists())
        self.model.export(small.folder / "whole", format="model", overwrite=True)
        self.assertTrue((small.folder / "whole" / "model.safetensors").exists())
        self.model.detach()
        np.testing.assert_array_equal(self.model.logits(ids), small.load().logits(ids))
        chosen = self.model.fit(small.text, density=0.6, num_groups=4, local_window=4, block=4, sinks=1, context=64,
                                tokens=512)
        self.assertTrue(chosen.tried)

    def test_generation(self):
        pieces = list(self.model.generate("the fox", max_new_tokens=12, temperature=0))
        whole = self.model.complete("the fox", max_new_tokens=12, temperature=0)
        self.assertEqual("".join(pieces), whole.text)
        self.assertEqual((len(whole.ids), whole.stop, str(whole)), (12, "max-new-tokens", whole.text))
        self.assertEqual(self.model.complete(self.model.encode("the fox"), max_new_tokens=12, temperature=0).ids, whole.ids)
        biased = self.model.complete("the fox", max_new_tokens=5, temperature=0, logit_bias={65: 100}, top_logprobs=2)
        self.assertEqual((biased.text, len(biased.logprobs), len(biased.logprobs[0]["top"])), ("AAAAA", 5, 2))
        self.assertEqual(self.model.complete("the fox", max_new_tokens=9, logit_bias={65: 100}, stop="AA").text, "")
        if PROGRAM:
            text = program("generate", small.base, "--prompt", "the fox", "--max-new-tokens", 12, "--temperature", 0)
            self.assertEqual(text, whole.text + "\n")
        with self.refused("temperature"):
            self.model.complete("a", temperature=-1)
        with self.refused("logit_bias"):
            self.model.complete("a", logit_bias={10**6: 1})

    def test_who_leaves_a_text_ends_it(self):
        stream = self.model.generate("the fox", max_new_tokens=400, temperature=0)
        next(stream)
        stream.close()
        self.assertEqual(stream.result().stop, "caller")
        stream = self.model.generate("the fox", max_new_tokens=400, temperature=0)
        text = stream._text
        for _ in stream:
            break
        del stream
        text.join()
        self.assertEqual(text.made["stop"], "caller")
        self.assertEqual(len(self.model.complete("the fox", max_new_tokens=3).ids), 3)

    def test_another_thread_cancels(self):
        stream = self.model.generate("the fox", max_new_tokens=400, temperature=0)
        next(stream)
        self.model.cancel()
        with self.refused("stopped", focus_attention.Stopped):
            stream.result()

    @unittest.skipUnless(PROGRAM, "FOCUS_PROGRAM is not set")
    def test_chat(self):
        user = [{"role": "user", "content": "Hällo"}]
        with self.refused("chat template"):
            self.model.chat_prompt(user)
        folder = small.folder / "talks"
        program("tokenizer", "train", "--text", small.text, "--vocab-size", 300, "--out", folder)
        (folder / "chat_template.jinja").write_text("{% for m in messages %}<{{ m.content }}>{% endfor %}{{ tail }}")
        talks = small.load(tokenizer=folder)
        self.assertEqual(talks.chat_prompt(user, tail="!"), "<Hällo>!")
        self.assertTrue(talks.info.chat_template)

    def test_threads_at_once(self):
        ids = self.model.encode(TEXT[:64])
        wanted, wrong = self.model.logits(ids), []

        def work():
            own = small.load()
            for _ in range(5):
                for model in (self.model, own):
                    if not np.array_equal(model.logits(ids), wanted):
                        wrong.append(model)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


class Training(unittest.TestCase):
    def lora(self, out, **more):
        return focus_attention.train(base=small.base, method="lora", lora={"r": 2, "target_modules": ["q_proj"]}, steps=6,
                                     data=small.data, out=small.folder / out, **more)

    def test_results(self):
        self.assertTrue(small.trained.finished)
        self.assertEqual([r["step"] for r in small.trained.metrics() if "loss" in r], [1, 2, 3, 4])

    def test_a_callback_stops_a_run_that_goes_on_to_the_same_bits(self):
        whole = self.lora("whole")
        steps = []

        def note(event):
            if event["event"] == "step":
                steps.append(event["step"])
            return event.get("step") == 3

        part = self.lora("part", callback=note)
        self.assertEqual((part.finished, part.step, steps), (False, 3, [1, 2, 3]))
        rest = self.lora("part", resume=True)
        self.assertTrue(rest.finished)
        read = lambda result: Path(result.artifact).with_name("adapter_model.safetensors").read_bytes()
        self.assertEqual(read(whole), read(rest))
        model = small.load(adapters=small.folder / "whole")
        self.assertEqual(model.info.adapters[0]["kind"], "lora")
        model.export(small.folder / "peft", overwrite=True)
        self.assertTrue((small.folder / "peft" / "adapter_config.json").exists())
        with self.assertRaisesRegex(FocusError, "holds a run"):
            self.lora("whole")

    def test_ctrl_c_ends_a_run_with_a_checkpoint(self):
        def interrupt(event):
            if event.get("step") == 2:
                signal.raise_signal(signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            self.lora("stopped", callback=interrupt)
        self.assertTrue(self.lora("stopped", resume=True).finished)

    def test_what_a_callback_raises_comes_out(self):
        def broken(_):
            raise LookupError("mine")

        with self.assertRaisesRegex(LookupError, "mine"):
            self.lora("broken", callback=broken)

    def test_a_config_and_keys(self):
        config = small.folder / "run.yaml"
        config.write_text(f"base: {small.base}\nmethod: lora\nsteps: 5\nlora: {{r: 2}}\n")
        result = focus_attention.train(config, steps=2, data=small.data, out=small.folder / "by_config")
        self.assertEqual(result.step, 2)
        with self.assertRaisesRegex(FocusError, "did you mean steps"):
            focus_attention.train(stepz=2)
        with self.assertRaisesRegex(FocusError, "nowhere.yaml"):
            focus_attention.train("/nowhere.yaml")

    def test_notices_are_logged(self):
        text = small.folder / "crlf.txt"
        text.write_bytes(TEXT.replace("\n", "\r\n").encode())
        with self.assertLogs("focus_attention", logging.WARNING) as logs:
            with small.load() as model:
                model.perplexity(text, context=64)
        self.assertIn("CRLF", logs.output[0])


class Threads(unittest.TestCase):
    def test_the_same_bits_for_any_number(self):
        ids = list(range(200))
        with small.load() as model:
            focus_attention.set_threads(1)
            one = model.logits(ids)
            focus_attention.set_threads(3)
            self.assertEqual(focus_attention.machine()["threads"], 3)
            np.testing.assert_array_equal(model.logits(ids), one)
        focus_attention.set_threads(0)
        with self.assertRaisesRegex(FocusError, "threads"):
            focus_attention.set_threads(-1)


@unittest.skipUnless(PROGRAM, "FOCUS_PROGRAM is not set")
class Main(unittest.TestCase):
    def test_the_page_runs(self):
        """docs/python.md's example with a small model that has a tokenizer and a chat template."""
        root = Path(__file__).resolve().parents[2]
        folder = small.folder / "page"
        folder.mkdir()
        for name in ("train.txt", "held_out.txt"):
            (folder / name).write_text(TEXT * 12)
        program("tokenizer", "train", "--text", small.text, "--vocab-size", 300, "--out", folder / "tok")
        made = focus_attention.train(method="scratch", tokenizer=folder / "tok", steps=1, out=folder / "new",
                                     model={"hidden_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 1024},
                                     data=small.data)
        with focus_attention.load(made.artifact) as model:
            model.export(folder / "SmolLM2", format="model")
        (folder / "SmolLM2" / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        (folder / "configs").symlink_to(root / "configs")
        code = (root / "docs" / "python.md").read_text().split("```python\n")[1].split("```")[0]
        code = code.replace("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2").replace("steps=60", "steps=2")
        before = os.getcwd()
        os.chdir(folder)
        try:
            with unittest.mock.patch.dict(sys.modules, {"matplotlib": unittest.mock.MagicMock()}):
                exec(compile(code, "docs/python.md", "exec"), {})  # pylint: disable=exec-used
        finally:
            os.chdir(before)
        self.assertTrue((folder / "groups.h5").exists())

    def test_the_module_is_the_program(self):
        done = subprocess.run([sys.executable, "-m", "focus_attention", "--version"], capture_output=True, text=True)
        self.assertEqual(done.stdout, program("--version"), done.stderr)
        done = subprocess.run([sys.executable, "-m", "focus_attention"], capture_output=True, text=True,
                              env={**os.environ, "FOCUS_PROGRAM": "/nowhere"})
        self.assertIn("FOCUS_PROGRAM", done.stderr)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
