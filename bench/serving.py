#!/usr/bin/env python3
"""Times `focus serve` and llama.cpp's server by the same client, in turn: a question on a long text, a second one on
it, what is generated behind the text, and four clients at once beside one.

    python3 bench/serving.py PROGRAM MODEL.gguf TEXT [--adapter A --attention SPEC] [--rounds 3] >> row.jsonl

TEXT is some 8,000 tokens. llama.cpp is PyPI's xllamacpp, where --peer names an interpreter that has it. Prints a JSON
row a side: medians over the rounds, and their range.
"""

import argparse
import datetime
import http.client
import json
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import machine

NO_END = {"0": -100, "2": -100}  # SmolLM2's ends of a text and of an answer
QUESTIONS = ("\n\nIn one sentence, what is this text about?", "\n\nWho is the first person that is named, and why?")
CLIENTS, CLIENT_TOKENS = 4, 96

LLAMA = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent / "peers")!r})
from llamacpp import serve
server = serve(sys.argv[1], int(sys.argv[2]), 4)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


class Side:
    """A server as a process, and its address."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while not (found := re.search(r"http://([^:]+):(\d+)", line := self.process.stdout.readline())):
            if not line:
                raise SystemExit(f"serving.py: {name} did not start")
        self.host, self.port = found[1], int(found[2])

    def close(self):
        self.process.stdin.close()
        self.process.terminate()
        self.process.wait(60)

    def stream(self, prompt, tokens):
        """Seconds to the first piece of text, and seconds from it to the last."""
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "logit_bias": NO_END}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=600)
        began = time.monotonic()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"serving.py: {self.name}: {answer.read()!r}")
        first = last = None
        for line in answer:
            if line.startswith(b"data: {") and json.loads(line[6:])["choices"]:
                last = time.monotonic()
                first = first or last
        connection.close()
        return first - began, last - first


def together(side, prompts):
    """Tokens a second of all clients at once."""
    clients = [threading.Thread(target=side.stream, args=(prompt, CLIENT_TOKENS)) for prompt in prompts]
    began = time.monotonic()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return len(prompts) * CLIENT_TOKENS / (time.monotonic() - began)


def measure(side, text):
    first, _ = side.stream(text + QUESTIONS[0], 2)
    second, spent = side.stream(text + QUESTIONS[1], 65)
    prompts = [text[600 * i : 600 * i + 400] for i in range(1, 1 + 2 * CLIENTS)]
    alone = [together(side, [prompt]) for prompt in prompts[:2]]
    return {
        "first_answer_s": first,
        "second_answer_s": second,
        "decode_behind_text_tokens_per_second": 64 / spent,
        "one_client_tokens_per_second": statistics.mean(alone),
        "four_clients_tokens_per_second": together(side, prompts[CLIENTS:]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--adapter")
    parser.add_argument("--attention")
    parser.add_argument("--peer", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8")
    cores = machine.describe()["cores"]
    ours = [options.program, "serve", options.model, "--port", "0", "--precision", "q8", "--parallel", "4"]
    sides = {"focus, dense, q8": ours}
    if options.adapter:
        sides[f"focus, {options.attention}, q8"] = [*ours, "--adapter", options.adapter, "--attention", options.attention]
    sides["llama.cpp"] = [options.peer, "-c", LLAMA, options.model, str(cores)]
    taken = {name: [] for name in sides}
    for _ in range(options.rounds):
        for name, command in sides.items():
            machine.wait_until_quiet(60)
            side = Side(name, command)
            taken[name].append(measure(side, text))
            side.close()
    for name, rounds in taken.items():
        row = {"date": f"{datetime.date.today()}", "machine": machine.describe(), "model": Path(options.model).name,
               "side": name, "rounds": options.rounds, "letters": len(text)}
        for key in rounds[0]:
            values = sorted(one[key] for one in rounds)
            row[key] = {"median": round(statistics.median(values), 3), "range": [round(values[0], 3), round(values[-1], 3)]}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
