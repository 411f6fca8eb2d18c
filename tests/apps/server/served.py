"""`focus serve` as a process, and small random models for it."""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request

TEMPLATE = "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}<assistant>"


def focus(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, f"focus {' '.join(map(str, arguments))}: {done.stderr}"
    return done.stdout


def small_models(program, work, positions=16384):
    """A checkpoint file without a chat template, a folder with one, and a Focus adapter."""
    text = work / "text.txt"
    text.write_text("the fox went into a dark wood and saw many hens there\n" * 80)
    focus(program, "tokenizer", "train", "--text", text, "--vocab-size", 280, "--out", work / "words")
    common = [f"tokenizer={work / 'words'}", f"data.train={text}", f"data.valid={text}", "data.context=64",
              "data.batch=2", "steps=2", "eval_every=0", "checkpoint_every=0"]
    focus(program, "train", "method=scratch", "model.hidden_size=32", "model.num_hidden_layers=2",
          "model.initializer_range=0.15", f"model.max_position_embeddings={positions}",
          f"out={work / 'base'}", *common)
    base, folder = work / "base" / "model.h5", work / "talks"
    focus(program, "train", f"base={base}", "focus.num_groups=4", "focus.tokens.routing_dim=8",
          "focus.local_window=8", f"out={work / 'sparse'}", *common)
    focus(program, "export", base, "--out", folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return base, folder, work / "sparse" / "focus.h5"


class Server:
    """The program on a port of its choice, until the end of the `with`."""

    def __init__(self, command, environment=None):
        self.process = subprocess.Popen([*map(str, command), "--port", "0"], text=True,
                                        stdout=subprocess.PIPE, env={**os.environ, **(environment or {})})
        found = re.search(r"http://([^:]+):(\d+)", self.process.stdout.readline())
        assert found, "the server did not start"
        self.host, self.port, self.url = found[1], int(found[2]), found[0]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.process.terminate()
        status = self.process.wait(120)
        assert kind or status == 0, f"the server ended with status {status}"

    def ask(self, path, body=None, headers=None):
        """The status, and the answer's text."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics(self):
        lines = self.ask("/metrics")[1].splitlines()
        return {name.removeprefix("focus_"): float(value)
                for name, value in (line.split() for line in lines if not line.startswith("#"))}

    def memory(self):
        """Bytes of the process that lie in memory."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
