"""Clients of `focus serve` as they come: right, slow, dying and hostile ones, many at once, for a time, and then
all slots must be free, answers as before, and the memory no more than it was: python3 clients.py PROGRAM SECONDS
[SEED [MODEL AND OPTIONS]], with a small random model and its Focus adapter unless said."""

import gzip
import json
import os
import random
import resource
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

from served import Server, small_models

PATHS = ("/v1/completions", "/v1/chat/completions")
THREADS, CROWD = 12, 1000
MOST_GROWTH = 48 << 20  # bytes of memory, beside a tenth of what it was; sanitizers keep what is freed


class Asked:
    """Requests whose answers are known."""

    def __init__(self, server, count=6):
        words = "the fox went into a dark wood and saw many hens there".split()
        source = random.Random(0)
        self.requests, self.texts = [], []
        for i in range(count):
            prompt = " ".join(source.choice(words) for _ in range(3 + 9 * i))
            self.requests.append({"prompt": prompt, "max_tokens": 24, "temperature": 0, "seed": 1})
            status, text = server.ask(PATHS[0], self.requests[-1])
            assert status == 200, text
            self.texts.append(json.loads(text)["choices"][0]["text"])

    def check(self, server, source):
        i = source.randrange(len(self.texts))
        status, text = server.ask(PATHS[0], self.requests[i])
        if status == 503:
            return False
        assert status == 200, f"status {status}: {text}"
        found = json.loads(text)["choices"][0]["text"]
        assert found == self.texts[i], f"answer {i}: {found!r}, not {self.texts[i]!r}"
        return True


def connect(server, seconds=60):
    one = socket.create_connection((server.host, server.port), timeout=seconds)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return one


def post(body, path=PATHS[0], headers=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def read_all(one, most=1 << 20):
    """Until the other side closes it, or is silent for long."""
    text = b""
    try:
        while len(text) < most and (part := one.recv(1 << 14)):
            text += part
    except OSError:
        pass
    return text


def end_at_once(one):
    """With a reset in the place of an orderly end."""
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def stream(server, asked, source):
    """Reads a stream, and what it says must be the whole answer; or slowly; or leaves."""
    i, kind = source.randrange(len(asked.texts)), source.choice(("whole", "slow", "dies", "deaf"))
    request = dict(asked.requests[i], stream=True)
    if kind != "whole":
        request["max_tokens"] = source.choice((5, 300, 1 << 20))
    with connect(server) as one:
        one.sendall(post(request, headers="Connection: close\r\n"))
        if kind == "whole":
            head, _, body = read_all(one).partition(b"\r\n\r\n")
            if b" 503 " in head.split(b"\r\n")[0]:
                return
            lines = [line for line in body.decode().split("\n") if line.startswith("data: {")]
            text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines)
            assert text == asked.texts[i], f"stream {i}: {text!r}, not {asked.texts[i]!r}"
        elif kind == "slow":
            for _ in range(source.randrange(40)):
                if not one.recv(source.randrange(1, 40)):
                    break
                time.sleep(source.random() / 20)
        else:
            if kind == "dies":
                one.recv(source.randrange(1, 2000))
            time.sleep(source.random() / 10)
        if source.random() < 0.5:
            end_at_once(one)


def wrong_bodies(source):
    deep = source.choice((100, 10_000, 1_000_000))
    value = source.choice((None, True, -1, 1e308, 10**400, "", "x" * 100, [], {}, [[1]], {"a": {}}, 0.5, "\0", "\ud800"))
    field = source.choice("prompt max_tokens temperature top_p min_p top_k seed stop logit_bias n logprobs stream "
                          "stream_options echo repetition_penalty user suffix messages model extra".split())
    return source.choice((
        lambda: b"[" * deep, lambda: b'{"prompt":' * deep, lambda: b'{"a":' * deep + b"1" + b"}" * deep, lambda: b"",
        lambda: bytes(source.randrange(256) for _ in range(source.randrange(1, 300))),
        lambda: json.dumps({"prompt": "a", "max_tokens": 2, field: value}).encode(),
        lambda: json.dumps({"prompt": "a", "max_tokens": 2, field: value}).encode()[:source.randrange(1, 30)],
        lambda: b'{"prompt": "\xff\xfe", "max_tokens": 1}', lambda: b'{"prompt": "a", "prompt": "b", "max_tokens": 1}',
        lambda: json.dumps({"prompt": "word " * source.choice((10_000, 1_000_000)), "max_tokens": 1}).encode(),
        lambda: json.dumps({"prompt": source.choice(([-1], [1 << 40], [[]], [0.5], ["a", [1]], [1, "a"], [[1]] * 900)),
                            "max_tokens": 1}).encode(),
        lambda: json.dumps({"messages": source.choice(([], [1], [{"role": 1}], [{"role": "user"}] * 999,
                                                       [{"role": "user", "content": [{"type": "x"}]}]))}).encode(),
        lambda: json.dumps({"prompt": "a", "stop": ["x" * 9999] * 16, "max_tokens": 3}).encode(),
        lambda: json.dumps({"prompt": "a", "logit_bias": {str(i): 1 for i in range(999)}, "max_tokens": 1}).encode(),
        lambda: b" " * ((16 << 20) + 1)))()


def wrong_request(server, source):
    body, path = wrong_bodies(source), source.choice(PATHS)
    status, text = server.ask(path, body)
    assert status in (200, 400, 413, 503), f"status {status}: {text} for {body[:200]}"
    if status != 200:
        error = json.loads(text)["error"]
        assert error["message"] and "\n" not in error["message"], text


def noise(server, asked, source):
    """What is hardly HTTP."""
    good = post(asked.requests[0])
    head = f"POST {PATHS[0]} HTTP/1.1\r\nHost: x\r\n".encode()
    chunks = head + b"Transfer-Encoding: chunked\r\n\r\n"
    at = source.randrange(len(good))
    changed = good[:at] + bytes([source.randrange(256)]) + good[at + 1:]
    sent = source.choice((
        changed, good[:at], good * 9, b"\0" * 5000, b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
        head + b"X: " + b"y" * 100_000 + b"\r\n\r\n", head + b"X: y\r\n" * 20_000 + b"\r\n", b"\r\n" * 2000,
        head + b"Content-Length: -1\r\n\r\n{}", head + b"Content-Length: 99999999999999999999\r\n\r\n{}",
        head + b"Content-Length: 500\r\n\r\n{", head + b"Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}",
        chunks + b"zz\r\n", chunks + b"ffffffffffffffff\r\n{}", chunks + b"-5\r\n{}\r\n0\r\n\r\n", chunks + b"2\r\n{}",
        post(gzip.compress(b" " * (64 << 20)), headers="Content-Encoding: gzip\r\n"),
        post(good[-90:], headers="Content-Encoding: br\r\n"), post(b"{}", headers="Expect: 100-continue\r\n"),
        post(b"--x\r\n\r\n--x--", headers="Content-Type: multipart/form-data; boundary=x\r\n"),
        b"GET / HTTP/1.1\r\nRange: bytes=" + b",".join(b"0-0" for _ in range(900)) + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nRange: bytes=9999999999999999999-1,-0,5-2\r\n\r\n", b"OPTIONS * HTTP/1.1\r\n\r\n",
        b"HEAD / HTTP/1.1\r\n\r\n", b"PUT /v1/models HTTP/1.1\r\nContent-Length: 1\r\n\r\n1", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /%2e%2e/%00/../../etc/passwd?%zz HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"))
    with connect(server, source.choice((0.05, 1))) as one:
        try:
            one.sendall(sent)
            read_all(one)
        except OSError:
            pass
        if source.random() < 0.3:
            end_at_once(one)


def kept_alive(server, asked, source):
    """Several requests over one connection, right and wrong ones."""
    import http.client
    one = http.client.HTTPConnection(server.host, server.port, timeout=120)
    for _ in range(source.randrange(1, 9)):
        i = source.randrange(len(asked.texts))
        wrong = source.random() < 0.4
        try:
            one.request("POST", PATHS[0], b"{" if wrong else json.dumps(asked.requests[i]))
            answer = one.getresponse()
            body = answer.read()
        except (http.client.RemoteDisconnected, ConnectionError):
            one.close()  # after an error a server may close it
            continue
        assert answer.status in ((400,) if wrong else (200, 503)), f"status {answer.status}: {body}"
        if answer.status == 200:
            assert json.loads(body)["choices"][0]["text"] == asked.texts[i]
    one.close()


def refuse_bodies(server):
    """What is left of a body that is refused is not taken for the next request."""
    import http.client
    form = b"\r\n".join((b"--x", b'Content-Disposition: form-data; name="a"', b"", b"b" * 300_000, b"--x--", b""))
    one = http.client.HTTPConnection(server.host, server.port, timeout=120)
    for status, body, headers in ((413, (b"x\n" * (1 << 19) for _ in range(20)), {}),
                                  (400, form, {"Content-Type": "multipart/form-data; boundary=x"})):
        for expected, request in ((status, ("POST", PATHS[0], body, headers)), (200, ("GET", "/health"))):
            one.request(*request)
            answer = one.getresponse()
            text = answer.read()
            assert answer.status == expected, f"status {answer.status}, not {expected}: {text}"
    one.close()


def drip(server, asked, source):
    """A head or a body that comes byte by byte, with pauses, and never as a whole."""
    ones = [connect(server) for _ in range(source.randrange(1, 30))]
    sent = post(asked.requests[0])[:-1]
    begin = source.choice((0, len(sent) - 20))
    try:
        for at in range(begin, min(begin + source.randrange(1, 12), len(sent))):
            for one in ones:
                one.sendall(sent[:at + 1] if at == begin else sent[at:at + 1])
            time.sleep(0.2)
    except OSError:
        pass
    for one in ones:
        one.close()


def crowd(server, asked, source):
    """Far more connections than the server has threads, of which some ask, and yet each answer is right."""
    ones = []
    for _ in range(CROWD):
        ones.append(connect(server))
        if source.random() < 0.2:
            ones[-1].sendall(post(asked.requests[0]))
    start = time.monotonic()
    while not asked.check(server, source):
        time.sleep(0.05)
    print(f"clients: an answer beside {CROWD} connections took {time.monotonic() - start:.1f} s", flush=True)
    for one in ones:
        one.close()


def storm(server, asked, seconds, seed):
    """What went wrong; the numbers of clients by kind."""
    kinds = (lambda s: asked.check(server, s), lambda s: stream(server, asked, s), lambda s: wrong_request(server, s),
             lambda s: noise(server, asked, s), lambda s: kept_alive(server, asked, s), lambda s: drip(server, asked, s))
    weights, wrong, counts = (4, 6, 6, 6, 3, 1), [], [0] * len(kinds)
    end = time.monotonic() + seconds

    def run(number):
        source = random.Random(f"{seed}-{number}")
        while time.monotonic() < end and not wrong and server.process.poll() is None:
            kind = source.choices(range(len(kinds)), weights)[0]
            try:
                kinds[kind](source)
                counts[kind] += 1
            except (ConnectionError, TimeoutError, socket.timeout) as error:
                if kind in (0, 4):
                    wrong.append(f"kind {kind}, thread {number}: {error!r}")
            except Exception as error:  # noqa: BLE001
                wrong.append(f"kind {kind}, thread {number}: {error!r}")

    threads = [threading.Thread(target=run, args=(n,)) for n in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return wrong, counts


def settle(server, asked, slots):
    """All is free, and as many answers as there are slots are right at once."""
    end = time.monotonic() + 60
    while (now := server.metrics())["requests_running"] + now["requests_waiting"] > 0:
        assert time.monotonic() < end, f"slots are not free: {now}"
        time.sleep(0.1)
    wrong, threads = [], []
    for n in range(slots):
        def ask(number=n):
            try:
                asked.check(server, random.Random(number))
            except Exception as error:  # noqa: BLE001
                wrong.append(repr(error))
        threads.append(threading.Thread(target=ask))
        threads[-1].start()
    for one in threads:
        one.join()
    assert not wrong, wrong


def main():
    program, seconds = sys.argv[1], float(sys.argv[2])
    seed = int(sys.argv[3]) if sys.argv[3:] else 1
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1 << 16) if hard > 0 else 1 << 16, hard))
    with tempfile.TemporaryDirectory() as name:
        work, arguments = Path(name), sys.argv[4:]
        if not arguments:
            _, folder, adapter = small_models(program, work, 1024)
            arguments = [folder, "--adapter", adapter, "--attention", "summary:1"]
        with Server([program, "serve", *arguments, "--parallel", "4", "--cache-type", "f32"]) as server:
            asked = Asked(server)
            refuse_bodies(server)
            memory = 0
            for part in range(2):  # the first shows how much memory it takes
                wrong, counts = storm(server, asked, seconds / 2, seed + part)
                assert server.process.poll() is None, f"the server ended: {server.process.poll()}"
                crowd(server, asked, random.Random(seed))
                settle(server, asked, 4)
                grown = server.memory() - memory if memory else 0
                memory = memory or server.memory()
                print(f"clients: {counts} of each kind, {server.memory() >> 20} MiB; {server.metrics()}", flush=True)
                assert not wrong, wrong
            sanitized = any(name in Path(program).read_bytes() for name in (b"__asan_init", b"__tsan_init"))
            assert sanitized or grown <= MOST_GROWTH + memory / 10, f"the server's memory grew by {grown >> 20} MiB"
            for _ in range(4):  # it ends while it is busy
                connect(server).sendall(post(dict(asked.requests[0], max_tokens=1 << 20, stream=True)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
