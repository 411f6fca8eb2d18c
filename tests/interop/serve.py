"""`focus serve` as clients see it: the openai package talks and streams with it and reads log-probabilities,
and what lm_eval's local-completions scores through it is what the plugin of apps/lm_eval scores. Run by
run.sh, with what is installed of the two."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from lm_eval_backend import PROGRAM, TOLERANCE, Refused, FocusLM, focus, model, words

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


class Server:
    """The program on a port of its choice."""

    def __init__(self, folder):
        self.process = subprocess.Popen([PROGRAM, "serve", str(folder), "--port", "0"], text=True,
                                        stdout=subprocess.PIPE)
        self.url = re.search(r"http://\S+", self.process.stdout.readline()).group()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        assert self.process.wait(60) == 0, "the server did not end well"


def generated(folder, work, *more):
    focus("generate", folder, "--max-new-tokens", "12", "--temperature", "0", "--json", work / "g.json", *more)
    return json.loads((work / "g.json").read_text())["text"]


def check_openai(work):
    import openai

    _, folder = model(work)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    with Server(folder) as server:
        client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=0)
        name = client.models.list().data[0].id
        assert name == folder.name, name
        same = dict(model=name, max_tokens=12, temperature=0)
        talk = dict(same, messages=[{"role": "user", "content": "the fox"}])
        expected = generated(folder, work, "--chat", "--prompt", "the fox")
        answer = client.chat.completions.create(**talk, logprobs=True, top_logprobs=3)
        assert answer.choices[0].message.content == expected, answer
        assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens == 12
        chunks = list(client.chat.completions.create(**talk, stream=True,
                                                     stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == expected and chunks[-1].usage.completion_tokens == 12, text
        done = client.completions.create(**same, prompt="the fox", logprobs=2, echo=True)
        assert done.choices[0].text == "the fox" + generated(folder, work, "--prompt", "the fox"), done
        scored = done.choices[0].logprobs
        assert scored.token_logprobs[0] is None and all(p < 0 for p in scored.token_logprobs[1:])
        again = client.completions.create(**same, prompt=done.choices[0].text + " and")
        assert again.usage.prompt_tokens_details.cached_tokens > 0, again.usage
        try:
            client.completions.create(**same, prompt="a", n=3)
            raise AssertionError("n=3 was not refused")
        except openai.BadRequestError as error:
            assert "request.n" in error.body["message"], error.body


def check_lm_eval(work):
    from lm_eval.api.instance import Instance
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    store, folder = model(work)
    pairs = [(words(i, 9 + i % 40), " " + words(7 * i, 1 + i % 5)) for i in range(60)]
    asked = [Instance(request_type="loglikelihood", doc={}, arguments=a, idx=i)
             for i, a in enumerate(pairs)]
    with Server(folder) as server:
        api = LocalCompletionsAPI(base_url=server.url + "/completions", model="focus",
                                  tokenizer_backend="huggingface", tokenizer=str(folder),
                                  num_concurrent=4, batch_size=2, max_length=256)
        theirs = api.loglikelihood(asked, disable_tqdm=True)
    ours = FocusLM(base=store, attention="dense").loglikelihood(asked)
    for i, ((p, greedy), (q, expected)) in enumerate(zip(theirs, ours, strict=True)):
        assert abs(p - q) <= TOLERANCE and bool(greedy) == bool(expected), f"item {i}: {p} against {q}"


def main():
    for name, job in (("the openai client", check_openai), ("lm_eval's local-completions", check_lm_eval)):
        with tempfile.TemporaryDirectory() as folder:
            try:
                job(Path(folder))
            except ImportError as error:
                print(f"interop: {name} skipped: {error.name} is not installed", flush=True)
                continue
            except (AssertionError, Refused) as error:
                print(f"{name} FAILED: {error}")
                return 1
        print(f"{name}: focus serve answers as focus does", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
