"""`focus` as a model of the lm-evaluation-harness: `--model focus --model_args base=base.h5,...`, by the package
focus_attention (apps/python). Tokens, boundaries and sharing are those of `focus score`."""

import focus_attention

# First: the harness registers its own models only while none is.
import lm_eval.models  # noqa: F401
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model


@register_model("focus")
class FocusLM(LM):
    """base: a checkpoint file, Hugging Face folder or GGUF file; adapter, tokenizer, attention, precision, start,
    max_length and threads: the options of `focus score`."""

    def __init__(self, base, adapter=None, attention=None, tokenizer=None, precision="float32", start=None,
                 max_length=None, threads=None, batch_size=None, max_batch_size=None, device=None, **unknown):
        super().__init__()
        if unknown:
            raise ValueError(f"focus has no model_args {', '.join(sorted(unknown))}")
        if threads is not None:
            focus_attention.set_threads(int(threads))
        self.model = focus_attention.load(base, adapters=adapter or (), tokenizer=tokenizer, precision=precision)
        self.model.attention = attention or ""
        self.settings = {"start": start, "max_length": max_length}

    def _answers(self, requests):
        return self.model.score(requests, **self.settings) if requests else []

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
