#!/usr/bin/env python3
"""Every command of README.md, docs/*.md and deploy/README.md: TABLE says what is done with each. Most run as they are printed, in the page's
order and beside a real service; others are compared with what the product, a script or CMake knows. They run in a folder that looks like the
repository's root, so that what they write does not go into the source. What differs from the pages: ports, which the system chooses; PLACES, for
words that stand for something of the reader's; and the shipped model's temperature, which is 0."""
import collections
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from google.protobuf import json_format, message_factory

import grpcurl
from pages import check_flags, check_named, check_script, check_target, commands, default_port, help_of, program
from relay import BIN, MODEL, PATIENCE, ROOT, Process

PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")), "deploy/README.md"]
# Words of the pages, and what they are here.
PLACES = {
    "DIR": "models/baton-tiny",
    "MODEL": "models/baton-tiny",
    "FILE.jsonl": "models/baton-tiny/eval/documents.jsonl",
    "Llama-3.2-1B-Instruct-Q4_K_M.gguf": "tests/golden/gguf/data/mixed.gguf",
    "mooncake_conversation.jsonl": "trace.jsonl",
    "mooncake_synthetic.jsonl": "trace.jsonl",
    "/var/lib": "var",
    "/mnt/baton": "mnt",
    "/etc": "etc",
    "8GiB": "64MiB",
    "16GiB": "64MiB",
}
# The same for files of tenants and models, which are JSON.
CONFIG_PLACES = {
    "(64 digits)": 64 * "0",
    "/srv/llama-guard-3-1b": "models/baton-guard",
    "/srv/llama": "models/baton-tiny",
    "llama_guard": "baton_guard",
    "dns:///guard-decode:8470": "127.0.0.1:2",
}
ADDRESS = re.compile(r"(?<![\w.])(127\.0\.0\.1|0\.0\.0\.0|localhost|HOST):(\d+)")
ELSEWHERE = {4318: "OpenTelemetry's collector, which may be missing"}
SERVICE = "baton serve --model models/baton-tiny"
HELLO, WEATHER = "Hello! My name is Ada.", "What is the weather in Oslo?"
REQUEST = '{"timestamp": %d, "input_length": 600, "output_length": 20, "hash_ids": [%d, %d]}\n'
TRACE = "".join(REQUEST % (500 * i, i % 2, 7 + i) for i in range(8))

# The first row whose pattern begins a command says what is done (a method of Page, below), and what the command has to print, or why it does not
# run. A row may also say what standard input is, which flags make the command end sooner, and which command comes before.
Row = collections.namedtuple("Row", "begins action note stdin more first", defaults=("", "", ""))
TABLE = [
    Row(r"scripts/|python3 docs/|gpu-pack/run", "script", "it takes minutes, or a GPU"),
    Row(r"cmake --preset cuda && ninja", "build", "it compiles for minutes"),
    Row(r"build/cuda/bin/|baton serve .*--backend cuda", "flags", "it needs GPUs"),
    Row(r"baton model pull", "flags", "it needs a network"),
    Row(r"baton model (inspect DIR --expert|pack|prune)|baton(-decode|) .*--expert-file", "flags", "the source has no mixture with a tokenizer"),
    Row(r"docker (build|push)|helm install", "elsewhere", "tests/deploy/readme_test.py"),
    Row(r"helm test", "nothing", "it needs a cluster"),
    Row(r"protoc ", "elsewhere", "tests/deploy/examples_test.py"),
    Row(r"import grpc\n", "elsewhere", "tests/deploy/readme_test.py"),  # it is examples/chat.py, which runs here
    Row(r"python3 -m venv build/python && build/python/bin/pip install", "nothing", "it needs a network"),
    Row(r"tar -xf gpu-pack", "nothing", "the archive is made with a CUDA toolkit"),
    Row(r"kvShared:", "nothing", "it is YAML; tests/deploy/chart_pods_test.py has it"),
    Row(r"export (ANTHROPIC|CLAUDE_CODE)_|model = ", "nothing", "it is for an agent, which takes minutes to install: tests/deploy/agents_test.py"),
    Row(r'{"conversation"', "message", "it is a ChatRequest"),
    Row(r'{"tenants"', "config", "--tenants"),
    Row(r'{"models"', "config", "--models"),
    Row(r"\w+=\S+$", "assign", "the rest of the block has it"),

    Row(r"baton serve .*--vllm-metrics", "serve", "^vllm:"),
    Row(r"baton(-prefill|-decode|-router|-gateway| serve) ", "serve", "^baton_"),
    Row(r"baton chat --thinking", "run", ("I need the tool get_weather", 'call get_weather {"city": "Oslo"}'), stdin=WEATHER),
    Row(r"baton chat", "run", "Ada", stdin=HELLO),
    Row(r"baton generate .*--show-timing", "run", ("there was a", "= TTFT")),
    Row(r"baton generate .*--json", "run", r'"completion_tokens": [1-9]'),
    Row(r"baton generate", "run", "there was a"),
    Row(r"baton explain", "run", ("The prompt has ", "= TTFT", r"Token 8: ", r"vocabulary +2,048 left")),
    Row(r"baton bench", "run", ("8 ok, 0 failed", "TTFT"), more="--requests 8"),
    Row(r"baton model inspect", "run", r"loads +yes"),
    Row(r"baton eval --model models/baton-tiny --text", "run", r"--weights \w+ --key-dtype", more="--tokens 100 --repetitions 1"),
    Row(r"baton eval", "run", r"same answers", more="--most 2"),
    Row(r"baton simulate .*--disk", "run", r"disk 200GiB"),
    Row(r"baton simulate", "run", ("llm-d", "mooncake-pool", "prefix_affinity", "bound")),
    Row(r"baton key new", "run", ""),
    Row(r"baton usage .*--json", "run", r'"currency": ?"EUR"'),
    Row(r"baton usage", "run", "baton-tiny", first='baton generate --prompt "Once upon a time"'),
    Row(r"grpcurl .*grpc.health.v1.Health/Check", "run", r'"status": "SERVING"'),
    Row(r"grpcurl .*Moderate$", "run", ('"flagged": true', '"threat"')),
    Row(r'grpcurl (.|\n)*"cache"', "run", r'"writtenHourTokens": [1-9]'),
    Row(r'grpcurl (.|\n)*"json_schema"', "run", (r'\\"legs\\": \d+}"', "FINISH_REASON_STOP_TOKEN")),
    Row(r'grpcurl (.|\n)*"tools"', "run", (r'"argumentsJson": "{\\"city\\": \\"Oslo\\"}"', "FINISH_REASON_TOOL_CALLS")),
    Row(r"grpcurl .*vllm", "run", ('"text"', "finishInfo")),
    Row(r"grpcurl ", "run", ('"text"', "FINISH_REASON_")),
    Row(r"curl ", "run", r'"finish_reason": ?"stop"'),
    Row(r"import (openai|anthropic)", "python", "Hello[,!]"),
    Row(r"import numpy", "python", "Once upon a time there was a"),
    Row(r"build/python/bin/python -m grpc_tools.protoc", "run", ""),
    Row(r"PYTHONPATH=build/python build/python/bin/python examples/", "run", "Ada"),
    Row(r"cat > prices.json <<", "run", ""),
    Row(r"openssl rand", "run", ""),
]


def row_of(text):
    return next((row for row in TABLE if re.match(row.begins, text.removeprefix("build/release/bin/"))), None)


def lay_out(folder):
    """A root of the repository for commands to run in."""
    for path in ROOT.iterdir():
        if path.name not in ("build", "models", "examples", ".git"):
            os.symlink(path, f"{folder}/{path.name}")
    for name in ("build/release", "build/python/bin", "models/baton-tiny", "examples", "bin", "etc", "mnt", "var"):
        os.makedirs(f"{folder}/{name}")
    os.symlink(BIN, f"{folder}/build/release/bin")
    ours = {MODEL, MODEL / "generation_config.json", *(ROOT / "examples").glob("*.py")}
    for path in {*(ROOT / "models").iterdir(), *MODEL.iterdir(), *(ROOT / "examples").iterdir()} - ours:
        os.symlink(path, f"{folder}/{path.relative_to(ROOT)}")
    defaults = json.loads((MODEL / "generation_config.json").read_text())
    python = f"#!/bin/sh\nexec {sys.executable}"
    files = {
        "models/baton-tiny/generation_config.json": json.dumps({**defaults, "temperature": 0.0}),
        "trace.jsonl": TRACE,
        "fleet.json": subprocess.run([BIN / "baton", "simulate", "--print-fleet"], capture_output=True, text=True, check=True).stdout,
        "bin/grpcurl": f'{python} {grpcurl.__file__} "$@"\n',
        "build/python/bin/python": f'{python} "$@"\n',
    }
    for name, text in files.items():
        path = pathlib.Path(folder, name)
        path.write_text(text)
        path.chmod(0o755)


class Page:
    """Carries out a page's commands. A server that names a port of the page, or has one by default, takes it over from the one before."""

    def __init__(self, name, folder, used):
        self.name, self.folder, self.used = name, folder, used
        self.ports, self.servers, self.assigned = {}, {}, ""

    def moved(self, text):
        def address(found):
            port = int(found[2])
            if port == 0 or port in ELSEWHERE:
                return found[0]
            assert port in self.ports, f"no server of this page listens on {found[0]}"
            return self.ports[port]

        return ADDRESS.sub(address, text)

    def placed(self, text):
        def place(found):
            self.used.add(found[0])
            return PLACES[found[0]]

        words = "|".join(map(re.escape, PLACES))
        return re.sub(rf"(?<![\w/.-])(?:{words})(?!\w)", place, text)

    def serve(self, command, row):
        """Starts a server, which stops the one that had its ports; of servers without ports of their own there is one of each kind."""
        words = shlex.split(self.placed(command), comments=True)
        known, taken = program(words), {}
        for flag in ("--listen", "--metrics", "--http"):
            if flag in words:
                at = words.index(flag) + 1
                taken[flag], words[at] = int(words[at].rsplit(":", 1)[1]), "127.0.0.1:0"
            elif flag != "--http":
                taken[flag] = default_port(flag, *known) or f"{known[-1]} {flag}"
                words += [flag, "127.0.0.1:0"]
        for port in taken.values():
            before = self.servers.pop(port, None)
            if before and before not in self.servers.values():
                before.stop()
        process = Process([self.moved(word) for word in words] + (["--json"] if known[-1] == "serve" else []))
        self.servers.update(dict.fromkeys(taken.values(), process))
        said = process.wait_for(r"^{.*}$|^ready .*")[0]
        told = json.loads(said) if said[0] == "{" else dict(word.split("=") for word in said.split()[1:])
        names = {"--listen": ("router", "grpc", "http"), "--metrics": ("metrics",), "--http": ("http",)}
        self.ports.update({port: next(told[name] for name in names[flag] if name in told) for flag, port in taken.items()})
        for path in (ROOT / "examples").glob("*.py"):
            if all(int(port) in self.ports for _, port in ADDRESS.findall(path.read_text())):
                pathlib.Path(self.folder, "examples", path.name).write_text(self.moved(path.read_text()))
        if known[0] == "baton-router":  # it is ready before it has found its workers
            self.shell(f"baton health --wait 60s --server {told['grpc']}")
        with urllib.request.urlopen(f"http://{told['metrics']}/metrics", timeout=60) as metrics:
            self.expect(metrics.read().decode(), row)

    def shell(self, command, stdin=""):
        words = ["bash", "-ec", self.assigned + command]
        done = subprocess.run(words, cwd=self.folder, input=stdin, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"exit status {done.returncode} of {command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def expect(self, said, row):
        for note in [row.note] if isinstance(row.note, str) else row.note:
            assert re.search(note, said, re.MULTILINE), f"no {note} in what it said:\n{said}"

    def run(self, command, row):
        if row.first:
            before = row_of(row.first)
            getattr(self, before.action)(row.first, before)
        whole = self.placed(command)
        if re.match(r"(build/release/bin/)?baton ", whole):
            words = shlex.split(whole, comments=True)
            known = program(words)
            if "--server ADDR" in help_of(*known) and not {"--server", "--model"} & set(words):
                whole = whole.replace(f" {known[1]}", f" {known[1]} --server 127.0.0.1:{default_port('--server', *known)}", 1)
            whole = whole.partition(" #")[0] + " " + row.more
        self.expect(self.shell(self.moved(whole), row.stdin), row)

    def python(self, text, row):
        self.expect(self.shell(f"{sys.executable} - <<'END'\n{self.moved(text)}\nEND"), row)

    def assign(self, command, row):
        self.assigned += command + "\n"

    def message(self, text, row):
        kind = grpcurl.protos().FindMessageTypeByName("baton.v1.ChatRequest")
        json_format.Parse(text.replace("[...]", "[]"), message_factory.GetMessageClass(kind)())

    def config(self, text, row):
        """A router starts with the file."""
        for words, here in CONFIG_PLACES.items():
            text = text.replace(words, here)
        pathlib.Path(self.folder, "config.json").write_text(text)
        model = [] if row.note == "--models" else ["--model", "models/baton-tiny"]
        router = Process(["baton-router", "--decode", "127.0.0.1:1", row.note, "config.json", *model])
        try:
            router.wait_for("^ready ")
        finally:
            router.stop()

    def flags(self, command, row):
        check_flags(command)

    def script(self, command, row):
        check_script(command)

    def build(self, command, row):
        presets = {one["name"] for one in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
        for preset, targets in re.findall(r"cmake --preset (\S+) && ninja -C \S+ (.*)", command):
            assert preset in presets, preset
            for target in targets.split():
                check_target(target)

    def elsewhere(self, command, row):
        assert self.name in (ROOT / row.note).read_text(), f"{row.note} does not read {self.name}"

    def nothing(self, command, row):
        pass

    def stop(self):
        for process in set(self.servers.values()):
            process.stop()


class Commands(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        lay_out(folder.name)
        os.chdir(folder.name)
        os.environ["PATH"] = f"{folder.name}/bin:{BIN}:{os.environ['PATH']}"

    def test_every_command(self):
        rows, places = [], set()
        for name in PAGES:
            page, found = Page(name, self.folder, places), [(line, text, row_of(text)) for line, text in commands(name)]
            begin = time.monotonic()
            try:
                actions = {row.action for _, _, row in found if row}
                if actions & {"run", "python"} and "serve" not in actions:
                    page.serve(SERVICE, row_of(SERVICE))
                for line, text, row in found:
                    with self.subTest(f"{name}:{line}: {text}"):
                        self.assertIsNotNone(row, "TABLE lacks a row for it, with what it has to print, or why it can't run here")
                        rows.append(row)
                        getattr(page, row.action)(text, row)
            finally:
                page.stop()
            if found:
                print(f"    {name}: {len(found)} commands, {time.monotonic() - begin:.1f} s")
        self.assertEqual([row for row in TABLE if row not in rows], [], "no page has such a command: remove the row")
        self.assertEqual(set(PLACES) - places, set(), "no page has these words: remove them")

    def test_commands_in_sentences(self):
        """Between backquotes, by their names and flags."""
        benches = [path.read_text() for path in (ROOT / "tests" / "bench").rglob("*.cc")]
        for page in PAGES:
            for text in re.findall(r"`((?:baton[ -]|scripts/|build/release/)[^`]+)`", (ROOT / page).read_text()):
                with self.subTest(page, text=text):
                    if text.startswith("baton"):
                        check_flags(text)
                    elif text.startswith("scripts/"):
                        check_script(text)
                    else:
                        check_target(text.split()[0].rsplit("/", 1)[1])
                        check_named(text, *benches)


if __name__ == "__main__":
    unittest.main()
