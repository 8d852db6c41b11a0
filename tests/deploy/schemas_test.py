#!/usr/bin/env python3
"""Answers of a real service (`baton serve --http`) under schemas, as a constraint and as a strict tool's, validated by Python's jsonschema; in the middle
of them a decode worker dies, and what it wrote goes on elsewhere. The schemas are a share of tests/golden/schemas; BATON_SCHEMAS says how many (60)."""
import concurrent.futures
import json
import os
import pathlib
import queue
import re
import signal
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import jsonschema

from relay import MODEL, ROOT, Relay, until

COUNT = int(os.environ.get("BATON_SCHEMAS", "60"))
AT_ONCE = 8
# The tiny model ends what it writes the sooner the more it is left to chance.
MAX_TOKENS, TEMPERATURE = 800, 2
SECONDS = 45  # no answer begins later


class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.relay = Relay(folder.name, prefill=1, decode=2, more=["--http", "127.0.0.1:0"])
        cls.addClassCleanup(cls.relay.stop)
        every = json.loads((ROOT / "tests/golden/schemas/schemas.json").read_text())
        cls.cases = [every[int(i * len(every) / COUNT)] for i in range(COUNT)]

    def metric(self, name):
        with urllib.request.urlopen(f"http://{self.relay.announcement['metrics']}/metrics", timeout=60) as page:
            return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page.read().decode(), re.M))

    def ask(self, body):
        """(finish reason, message), or what a refusal says."""
        body = {"model": MODEL.name, "messages": [{"role": "user", "content": "Tell me about the order."}], "max_tokens": MAX_TOKENS, **body}
        request = urllib.request.Request(f"http://{self.relay.http}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                choice = json.load(answer)["choices"][0]
                return choice["finish_reason"], choice["message"]
        except urllib.error.HTTPError as error:
            return "refused", f"{error.code}: {error.read().decode()}"

    def constrained(self, schema, seed):
        reason, message = self.ask({"seed": seed, "temperature": TEMPERATURE, "response_format": {
            "type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}})
        return reason, message if reason == "refused" else message["content"]

    def called(self, schema, seed):
        tool = {"type": "function", "function": {"name": "take", "parameters": schema, "strict": True}}
        reason, message = self.ask({"seed": seed, "temperature": TEMPERATURE, "tools": [tool], "parallel_tool_calls": False,
                                    "tool_choice": {"type": "function", "function": {"name": "take"}}})
        if reason in ("refused", "length"):
            return reason, message
        (call,) = message["tool_calls"]
        self.assertEqual(call["function"]["name"], "take")
        return reason, call["function"]["arguments"]

    def test_every_answer_validates_and_so_does_what_a_lost_worker_began(self):
        begun = time.monotonic()
        jobs = [(case, way, seed) for seed, case in enumerate(self.cases) for way in (self.constrained, self.called)
                if way == self.constrained or (isinstance(case["schema"], dict) and case["schema"].get("type") == "object")]
        ended = queue.Queue()

        def run(job):
            case, way, seed = job
            try:
                if time.monotonic() - begun > SECONDS:
                    return (*job, "late", "")
                return (*job, *way(case["schema"], seed))
            finally:
                ended.put(None)

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            results = pool.map(run, jobs)
            # Eight answers are under way, on two workers, and one of these dies. If nothing was on it just then, once more.
            kills = 0
            for count in range(1, len(jobs) + 1):
                ended.get()
                if count >= len(jobs) // 3 and count % AT_ONCE == 0 and self.metric("baton_router_decode_lost_total") == 0:
                    os.kill(self.worker_now(), signal.SIGKILL)
                    kills += 1
            results = list(results)
        self.assertGreater(self.metric("baton_router_decode_lost_total"), 0, f"no answer was on a worker when it died, {kills} times")

        counts, wrong = {}, []
        for case, way, seed, reason, text in results:
            kind = reason if reason in ("refused", "length", "late") else "whole"
            counts[way.__name__, kind] = counts.get((way.__name__, kind), 0) + 1
            name = f"{case['name']}, {way.__name__}, seed {seed}"
            if kind == "refused":
                self.assertIn("400: ", text, name)
                message = json.loads(text.removeprefix("400: "))["error"]["message"]
                words = [word for word in jsonschema.Draft202012Validator.VALIDATORS if word != "type" and f'"{word}"' in json.dumps(case["schema"])]
                words += [json.loads(f'"{text}"') for text in re.findall(r'"pattern": "((?:[^"\\]|\\.)*)"', json.dumps(case["schema"]))]
                self.assertTrue(any(word in message for word in words), f"{name}: {message} names no keyword or pattern of the schema")
            elif kind == "whole":
                try:
                    errors = [error.message for error in jsonschema.Draft202012Validator(case["schema"]).iter_errors(json.loads(text))]
                except ValueError as error:
                    errors = [str(error)]
                if errors:
                    wrong.append(f"{name}: {text}: {errors[0]}")
        print(f"{len(jobs)} answers under {len(self.cases)} schemas in {time.monotonic() - begun:.1f} s: "
              + ", ".join(f"{count} {way} {kind}" for (way, kind), count in sorted(counts.items())) + f"; {len(wrong)} invalid")
        self.assertEqual(wrong, [])
        for way in ("constrained", "called"):
            self.assertGreater(counts.get((way, "whole"), 0), COUNT // 6, "enough of them are whole")

    def worker_now(self):
        """A decode worker's process; one that died was started again."""
        def find():
            for folder in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    program = (folder / "cmdline").read_bytes().decode().split("\0")[0]
                    parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
                except (OSError, IndexError):
                    continue
                if program.endswith("baton-decode") and parent == self.relay.process.popen.pid:
                    return int(folder.name)
            return None
        return until(find, "no decode worker")


if __name__ == "__main__":
    unittest.main()
