"""The page of `focus serve` in headless Chromium: python3 page.py PROGRAM [FOLDER], which gets pictures of
it. Ends with 77 and one line where there is no Chromium."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from base64 import b64decode
from pathlib import Path

from served import Server, small_models

NAMES = ("chromium", "chromium-browser", "google-chrome")


class Browser:
    """A page in Chromium, which takes commands of the DevTools protocol from a pipe."""

    def __init__(self, program, folder):
        to_browser, self.to = os.pipe()
        self.of, of_browser = os.pipe()

        def place():  # where the protocol has them
            for end, number in ((os.dup(to_browser), 3), (os.dup(of_browser), 4)):
                os.dup2(end, number)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (to_browser, of_browser):
            os.close(end)
        self.count, self.rest, self.session = 0, b"", None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        self.call("Runtime.enable")
        self.call("Page.enable")

    def close(self):
        self.process.terminate()
        self.process.wait(30)

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                read = os.read(self.of, 1 << 16)
                assert read, "Chromium has ended"
                self.rest += read
            one, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(one)
            if answer.get("method") == "Runtime.exceptionThrown":
                raise AssertionError(f"the page threw: {answer['params']['exceptionDetails']}")
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, script):
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def until(self, script, seconds=60):
        end = time.monotonic() + seconds
        while not self.value(script):
            assert time.monotonic() < end, f"never: {script}\n" + self.value("document.body.innerText.slice(-999)")
            time.sleep(0.05)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && (document.getElementById('kind')?.textContent"
                   " || document.getElementById('lock')?.hidden === false)")

    def key(self, name, modifiers=0):
        text = {"text": "\r"} if name == "Enter" else {}
        code = {"Enter": 13, "Escape": 27}[name]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, modifiers=modifiers,
                      windowsVirtualKeyCode=code, **(text if kind == "keyDown" else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def look(self, width, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=720, deviceScaleFactor=1,
                  mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def picture(self, path):
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


ANSWERS = "[...document.querySelectorAll('article:not(.user) > p')].map(p => p.textContent)"
FIGURES = "document.querySelector('article:last-of-type .figures').innerText"
FREE = "document.getElementById('stop').hidden"
SHIFT = 8


def drop(browser, name, script):
    """A file of these bytes, as if it were dropped on the page."""
    browser.value(f"""(() => {{ const data = new DataTransfer();
        data.items.add(new File([{script}], {json.dumps(name)}));
        dispatchEvent(new DragEvent('drop', {{dataTransfer: data, cancelable: true}})); }})()""")


def check_chat(browser, server, folder):
    browser.look(1000, dark=False)
    browser.open(server.url)
    assert browser.value("document.getElementById('name').textContent") == "talks"
    assert browser.value("document.getElementById('kind').textContent").startswith("summary")
    browser.value("void (document.getElementById('temperature').value = '0', "
                  "document.getElementById('most').value = '40')")
    # Shift+Enter breaks the line, Enter sends.
    browser.type("the fox")
    browser.key("Enter", SHIFT)
    browser.type("went")
    assert browser.value("document.getElementById('input').value") == "the fox\nwent"
    assert not browser.value("document.querySelector('article')")
    browser.key("Enter")
    browser.until(f"{FREE} && {ANSWERS}.length === 1")
    messages = [{"role": "user", "content": "the fox\nwent"}]
    same = {"max_tokens": 40, "temperature": 0}
    expected = json.loads(server.ask("/v1/chat/completions", {"messages": messages, **same})[1])["choices"][0]
    text = expected["message"]["content"]
    assert browser.value(ANSWERS) == [text], (browser.value(ANSWERS), text)
    figures = browser.value(FIGURES)
    density = expected["focus"]["density"]
    assert 0 < density < 1, expected
    for part in ("summary", f"{100 * density:.1f}".removesuffix(".0") + "% density", " tokens/s", "40 tokens",
                 "prompt "):
        assert part in figures, (part, figures)
    # A file, and with it the conversation so far.
    drop(browser, "hens.txt", "'hens and foxes\\n'.repeat(40)")
    drop(browser, "noise.bin", "new Uint8Array([255, 0, 1])")
    browser.until("document.querySelectorAll('#files .file').length === 1")
    browser.until("document.getElementById('files').innerText.includes('noise.bin is no text')")
    browser.type("<b>why?</b>")
    browser.key("Enter")
    browser.until(f"{FREE} && {ANSWERS}.length === 2")
    messages += [{"role": "assistant", "content": text},
                 {"role": "user", "content": "hens and foxes\n" * 40 + "\n\n<b>why?</b>"}]
    expected = json.loads(server.ask("/v1/chat/completions", {"messages": messages, **same})[1])
    assert browser.value(ANSWERS)[1] == expected["choices"][0]["message"]["content"]
    shown = browser.value("[...document.querySelectorAll('.user')].pop().innerText")
    assert shown.split() == "hens.txt · 600 bytes <b>why?</b>".split(), shown
    for width, dark in ((1000, False), (1000, True), (360, False), (360, True)):
        browser.look(width, dark)
        assert browser.value("document.documentElement.scrollWidth") <= width
        ground = browser.value("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") != dark, ground
        if folder:
            browser.picture(folder / f"chat-{width}-{'dark' if dark else 'light'}.png")
    # Escape and the button stop an answer, which frees its slot and stays.
    browser.value("void (document.getElementById('most').value = '')")
    press = "void document.getElementById('{}').click()".format
    for stop in (lambda: browser.key("Escape"), lambda: browser.value(press("stop"))):
        browser.value(press("fresh"))
        browser.type("on and on")
        browser.key("Enter")
        browser.until(f"!{FREE} && {ANSWERS}.pop().length > 20")
        stop()
        browser.until(f"{FREE} && {FIGURES}.includes('stopped')")
    deadline = time.monotonic() + 60
    while server.metrics()["requests_running"] > 0:
        assert time.monotonic() < deadline, "a stopped answer keeps its slot"
        time.sleep(0.05)
    browser.value(press("fresh"))
    assert not browser.value("document.querySelector('article')")
    assert browser.value("document.activeElement.id") == "input"
    # What the server refuses is said, and can be sent again.
    browser.value("void (document.getElementById('input').value = 'x'.repeat(40000))")
    browser.key("Enter")
    browser.until(f"{FREE} && !!document.querySelector('.error')")
    assert "tokens, but the model takes 16384" in browser.value(FIGURES), browser.value(FIGURES)
    assert browser.value("document.getElementById('input').value.length") == 40000


def check_key(browser, server):
    """A model that has no chat template, behind a key."""
    browser.open(server.url)
    browser.until("!document.getElementById('lock').hidden")
    assert browser.value("document.activeElement.id") == "key"
    browser.type("secret")
    browser.key("Enter")
    browser.until("document.getElementById('kind').textContent === 'dense'")
    assert "no chat template" in browser.value("document.getElementById('hint').textContent")
    browser.value("void (document.getElementById('most').value = '12', document.getElementById('input').focus())")
    browser.type("the fox")
    browser.key("Enter")
    browser.until(f"{FREE} && {ANSWERS}.length === 1")
    assert "12 tokens" in browser.value(FIGURES), browser.value(FIGURES)
    assert "100% density" in browser.value(FIGURES), browser.value(FIGURES)


def main():
    program, chromium = sys.argv[1], next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        print("the page of focus serve: skipped: there is no Chromium")
        return 77
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        work = Path(name)
        base, folder, adapter = small_models(program, work)
        (work / "keys").write_text("secret\n")
        browser = Browser(chromium, work / "browser")
        try:
            with Server([program, "serve", folder, "--adapter", adapter, "--attention", "summary:1"]) as server:
                check_chat(browser, server, Path(sys.argv[2]) if sys.argv[2:] else None)
            with Server([program, "serve", base, "--api-key-file", work / "keys"]) as server:
                check_key(browser, server)
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
