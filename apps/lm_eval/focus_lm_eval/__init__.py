"""`focus` as a model of the lm-evaluation-harness: `--model focus --model_args base=base.h5,...`.

Each call of the harness becomes one call of `focus score`: requests into a file, answers out of one.
Tokens, boundaries and sharing are the program's."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

# First: the harness registers its own models only while none is.
import lm_eval.models  # noqa: F401
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model


@register_model("focus")
class FocusLM(LM):
    """base: a store or Hugging Face folder; adapter, tokenizer, attention, precision, start, max_length
    and threads: the options of `focus score`; program: its path, else $FOCUS_PROGRAM, else "focus"."""

    def __init__(self, base, adapter=None, attention=None, tokenizer=None, precision=None, start=None,
                 max_length=None, threads=None, program=None, batch_size=None, max_batch_size=None,
                 device=None, **unknown):
        super().__init__()
        if unknown:
            raise ValueError(f"focus has no model_args {', '.join(sorted(unknown))}")
        self.base = str(base)
        self.program = program or os.environ.get("FOCUS_PROGRAM", "focus")
        options = {"adapter": adapter, "attention": attention, "tokenizer": tokenizer,
                   "precision": precision, "start": start, "max-length": max_length,
                   "threads": threads}
        self.options = [word for name, value in options.items() if value is not None
                        for word in ("--" + name, str(value))]

    def _answers(self, requests):
        """`focus score` on a list of dictionaries."""
        if not requests:
            return []
        with tempfile.TemporaryDirectory() as folder:
            asked, answered = Path(folder, "in.jsonl"), Path(folder, "out.jsonl")
            asked.write_text("".join(json.dumps(r) + "\n" for r in requests), encoding="utf-8")
            done = subprocess.run([self.program, "score", self.base, *self.options, "--requests",
                                   str(asked), "--out", str(answered)],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode != 0:
                last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
                raise RuntimeError(last[0])
            return [json.loads(line) for line in answered.read_text(encoding="utf-8").splitlines()]

    def _tell(self, kind, requests, results):
        for request, result in zip(requests, results):
            self.cache_hook.add_partial(kind, request.args, result)
        return results

    def loglikelihood(self, requests, disable_tqdm=False):
        answers = self._answers([
            {"type": "loglikelihood", "context": r.args[0], "continuation": r.args[1]}
            for r in requests])
        return self._tell("loglikelihood", requests,
                          [(a["log_likelihood"], a["is_greedy"]) for a in answers])

    def loglikelihood_rolling(self, requests, disable_tqdm=False):
        answers = self._answers([{"type": "loglikelihood_rolling", "text": r.args[0]}
                                 for r in requests])
        return self._tell("loglikelihood_rolling", requests,
                          [a["log_likelihood"] for a in answers])

    def generate_until(self, requests, disable_tqdm=False):
        asked = []
        for request in requests:
            context, options = request.args[0], dict(request.args[1])
            if options.get("do_sample") or float(options.get("temperature") or 0) > 0:
                raise ValueError("focus answers generate_until greedily; do_sample must be false")
            until = options.get("until") or []
            item = {"type": "generate_until", "context": context,
                    "until": [until] if isinstance(until, str) else list(until)}
            most = options.get("max_gen_toks") or options.get("max_new_tokens")
            if most:
                item["max_gen_toks"] = int(most)
            asked.append(item)
        return self._tell("generate_until", requests, [a["text"] for a in self._answers(asked)])
