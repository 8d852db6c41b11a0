#!/usr/bin/env python3
"""The page of `baton serve --http` in a real browser (Chromium, without a window): a conversation with thinking and a call of a tool, and nothing that the page's
policy forbids; and how a token of an answer was chosen. Where there is no Chromium it is skipped. With --picture FILE.png it writes what it saw, and FILE-explain.png."""
import argparse
import base64
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest
import urllib.request

from relay import Process, Relay, lacking, until

PICTURE = None


class Tab:
    """One tab of a browser, by Chromium's debugging protocol: JSON over a WebSocket (RFC 6455)."""

    def __init__(self, browser):
        port = int(browser.wait_for(r"DevTools listening on ws://127\.0\.0\.1:(\d+)/")[1])
        pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=60))
        path = next(page for page in pages if page["type"] == "page")["webSocketDebuggerUrl"].split(str(port), 1)[1]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.stream = self.socket.makefile("rb")
        assert b" 101 " in self.stream.readline()
        while self.stream.readline() != b"\r\n":
            pass
        self.number, self.events = 0, []

    def message(self):
        text = b""
        while True:
            first, second = self.stream.read(2)
            size = second & 127
            if size >= 126:
                size = struct.unpack(">H" if size == 126 else ">Q", self.stream.read(2 if size == 126 else 8))[0]
            text += self.stream.read(size)
            if first & 128:
                return json.loads(text)

    def ask(self, method, **parameters):
        self.number += 1
        text = json.dumps({"id": self.number, "method": method, "params": parameters}).encode()
        size = bytes([128 | len(text)]) if len(text) < 126 else bytes([254]) + struct.pack(">H", len(text))
        self.socket.sendall(b"\x81" + size + b"\0\0\0\0" + text)
        while True:
            message = self.message()
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def value(self, expression):
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")


class Page(unittest.TestCase):
    def test_a_conversation(self):
        if shutil.which("chromium") is None:
            lacking(self, "no Chromium here: scripts/setup --ci brings it")
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        relay = Relay(folder.name, prefill=1, decode=1, more=["--http", "127.0.0.1:0"])
        self.addCleanup(relay.stop)
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-port=0", "--remote-allow-origins=*", "--window-size=980,1000"]
        browser = Process(["chromium", *flags, f"--user-data-dir={folder.name}/profile", "about:blank"], stream="stderr")
        self.addCleanup(browser.stop)
        tab = Tab(browser)
        for domain in ("Page", "Log", "Runtime"):
            tab.ask(f"{domain}.enable")
        tab.ask("Page.navigate", url=f"http://{relay.http}/")
        until(lambda: tab.value("document.getElementById('model')?.options.length"), "models on the page")
        turns = 0

        def say(text, more, setup=""):
            nonlocal turns
            tab.value(f"{setup}; document.getElementById('text').value = {json.dumps(text)}; document.getElementById('ask').requestSubmit()")
            turns += 1 + more
            last = "document.querySelectorAll('.turn')"
            until(lambda: tab.value(f"{last}.length == {turns} && {last}[{turns - 1}].querySelector('.facts') != null"), lambda: tab.value("document.body.innerText"))
            return tab.value(f"{last}[{turns - 1}].innerText")

        self.assertIn("Ada", say("Hello! My name is Ada.", 1))
        answer = say("What is 27 + 35?", 1, "document.getElementById('thinking').checked = true")
        self.assertIn("62", answer)
        self.assertEqual(tab.value("document.querySelectorAll('details').length"), 1)
        self.assertFalse(tab.value("document.querySelector('details').open"), "thinking is folded")
        setup = "document.getElementById('clear').click(); document.getElementById('thinking').checked = false; document.getElementById('tools').checked = true"
        if PICTURE is None:
            turns = 0
        else:
            setup = "document.getElementById('thinking').checked = false; document.getElementById('tools').checked = true"
        self.assertIn("sunny", say("What is the weather in Oslo?", 2, setup))
        self.assertIn("get_weather", tab.value("document.querySelector('.call').innerText"))
        facts = tab.value("document.querySelector('.facts').innerText")
        for word in ("admit", "prefill queue", "first token after", "cached", "decode-0"):
            self.assertIn(word, facts)
        self.assertEqual(tab.value("document.querySelectorAll('.facts .bar i').length % 6"), 0)
        wrong = [event["params"] for event in tab.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
        self.assertEqual([one for one in wrong if one.get("entry", {}).get("level", "error") in ("warning", "error")], [])
        if PICTURE is not None:
            PICTURE.write_bytes(base64.b64decode(tab.ask("Page.captureScreenshot", format="png")["data"]))
        # With its switch on, every token of an answer says how it was chosen.
        turns = 0
        setup = "document.getElementById('clear').click(); document.getElementById('tools').checked = false; document.getElementById('explain').checked = true"
        facts = say("Hello! My name is Ada.", 1, setup)
        tokens = int(re.search(r"(\d+) out", facts)[1])
        self.assertEqual(tab.value("document.querySelectorAll('.tokens .token').length"), tokens)
        self.assertIsNone(tab.value("document.querySelector('.trace')"), "nothing is open that nobody asked for")
        shown = "document.querySelector('.trace').innerText"
        for act in ("click", "focus"):
            tab.value(f"document.querySelectorAll('.token')[{1 if act == 'click' else 2}].{act}()")
            trace = tab.value(shown)
            self.assertRegex(trace, r"id \d+ · (drawn with the random number 0\.\d{6}|the likeliest)")
            self.assertRegex(trace, r"vocabulary 2,048 → constraint 2,048 → temperature [\d,]+ → top-k [\d,]+ → top-p [\d,]+ → min-p [\d,]+")
            self.assertGreaterEqual(tab.value("document.querySelectorAll('.trace tr').length"), 11, "ten tokens, and the head")
            self.assertEqual(tab.value("document.querySelectorAll('.trace').length"), 1)
            self.assertEqual(tab.value("document.querySelectorAll('.trace .chosen').length"), 1)
            self.assertTrue(tab.value("[...document.querySelectorAll('.trace .share i')].some((bar) => bar.getBoundingClientRect().width > 20)"), "bars that can be seen")
        wrong = [event["params"] for event in tab.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
        self.assertEqual([one for one in wrong if one.get("entry", {}).get("level", "error") in ("warning", "error")], [])
        if PICTURE is not None:
            PICTURE.with_stem(PICTURE.stem + "-explain").write_bytes(base64.b64decode(tab.ask("Page.captureScreenshot", format="png")["data"]))
        # The policy holds: nothing comes from elsewhere.
        held = """new Promise((done) => { document.addEventListener('securitypolicyviolation', (event) => done(event.violatedDirective));
                  document.body.insertAdjacentHTML('beforeend', '<img src="http://127.0.0.1:9/x.png">') })"""
        self.assertEqual(tab.value(held), "img-src")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", type=pathlib.Path)
    known, rest = parser.parse_known_args()
    PICTURE = known.picture
    unittest.main(argv=[sys.argv[0], *rest])
