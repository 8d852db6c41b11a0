#!/usr/bin/env python3
"""Speculation of llama.cpp's server and of Baton, in turns, on the same weights and the same machine.

    tests/bench/speculation/llama_cpp.py --llama DIR --model FILE.gguf [--draft-model FILE.gguf] [--threads N]

DIR is a folder of a llama.cpp that is built already, with llama-server in it; nothing of it is part of this project. Both answer the prompts
of four kinds of work in the model's own words, greedily, one at a time; shown are tokens per second of the answer, without and with drafts,
and their ratio. All servers run from the beginning, and one works at a time: in each round, and for each prompt, every mode of both answers
once, so that whatever else the machine does falls on all of them alike. Modes that are not there are said to be "not here". The figures of
one kind are comparable with each other, since both write as many tokens; acceptance is that of the model's own words, unlike in spec_bench,
which replays answers.
"""
import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
BATON = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build" / "release" / "bin")) / "baton"

FILE = "\n".join(f"def shelf_{i}(room):\n    boxes = room.boxes[{i}]\n    return [box.label for box in boxes if box.width > {i}]\n" for i in range(8))
CALL = '<tool_call>\n{{"name": "weigh", "arguments": {{"box": "{}"}}}}\n</tool_call>\nResult: {{"box": "{}", "kilograms": {}}}\n'
WORK = {
    "edit": f"Print this file again, with `limit` in the place of the numbers.\n{FILE}---\n{FILE[:80]}",
    "agent": "Weigh all boxes of the shelf.\n" + "".join(CALL.format(f"box-{i}", f"box-{i}", 3 + i) for i in range(6)) + "<tool_call>\n",
    "summary": " ".join(f"In {1784 + 13 * i} the mill at Hollow Ford was sold to its owner number {i + 1}, who ground the corn of nine villages." for i in range(12)) + "\nIn short:",
    "chat": "I want to begin to run, but after ten minutes I am always out of breath. What should I do?\n",
}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class LlamaServer:
    """llama-server with some flags, until the end of the block."""

    def __init__(self, program, flags):
        self.program, self.flags, self.port = program, flags, free_port()

    def __enter__(self):
        command = [self.program, "--host", "127.0.0.1", "--port", str(self.port), "--parallel", "1", *self.flags]
        self.said = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.said)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                self.said.seek(0)
                last = self.said.read().decode(errors="replace").strip().splitlines()[-1:]
                raise RuntimeError(f"it ended with {self.process.returncode}: {' '.join(last)}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)  # between two questions
        self.__exit__()
        raise RuntimeError("it is not ready after 300 s")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.said.close()

    def tokens_per_second(self, prompt, tokens):
        body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        ask = urllib.request.Request(f"http://127.0.0.1:{self.port}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(ask, timeout=600) as answer:
            return json.load(answer)["timings"]["predicted_per_second"]


def llama_modes(program, draft_model):
    """Of this build: name and flags of each mode, or why it is not here."""
    shown = subprocess.run([program, "--help"], capture_output=True, text=True, errors="replace")
    knows = shown.stdout + shown.stderr
    yield "off", [], None
    for kind in ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache"):
        yield kind, ["--spec-type", kind], None if "--spec-type" in knows and kind in knows else "this llama-server has no --spec-type " + kind
    if draft_model is None:
        yield "draft", [], "no --draft-model was given"
    else:
        # Newer ones load a draft model and draft nothing unless they are told the kind.
        kind = ["--spec-type", "draft-simple"] if "draft-simple" in knows else []
        yield "draft", [*kind, "--model-draft", draft_model], None if "--model-draft" in knows else "this llama-server has no --model-draft"


class BatonServer:
    """baton serve with a draft of the model, if `draft` has flags of one, until the end of the block: requests say how they are drafted for."""

    def __init__(self, options, draft):
        self.options, self.draft = options, draft

    def __enter__(self):
        options, self.folder, self.said = self.options, tempfile.TemporaryDirectory(), tempfile.TemporaryFile()
        announced = pathlib.Path(self.folder.name) / "addresses.json"
        command = [BATON, "serve", "--model", options.model, "--prefill", "0", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--weights", options.weights,
                   "--announce", announced, "--exit-with-parent", *self.draft]
        command += ["--threads", str(options.threads)] if options.threads else []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self.said)
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                self.said.seek(0)
                last = self.said.read().decode(errors="replace").strip().splitlines()[-1:]
                self.close()
                raise RuntimeError(f"it ended with {self.process.returncode}: {' '.join(last)}")
            if announced.exists():
                self.router = json.loads(announced.read_text())["router"]
                return self
            time.sleep(0.2)  # between two looks
        self.__exit__()
        raise RuntimeError("it is not ready after 300 s")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.close()

    def close(self):
        self.process.stdin.close()
        self.said.close()
        self.folder.cleanup()

    def tokens_per_second(self, how, prompt):
        command = [BATON, "generate", "--server", self.router, "--prompt", prompt, "--max-tokens", str(self.options.tokens), "--temperature", "0", "--ignore-eos", "--json", "--speculation", how]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        return 1 / json.loads(done.stdout)["choices"][0]["timing"]["tpot"]


class Mode:
    """A program and how it drafts: what it gave in each round, or why it gives nothing."""

    def __init__(self, program, how, once):
        self.program, self.name, self.once = program, f"{program} {how}", once
        self.figures, self.missing = {work: [] for work in WORK}, None

    def measure(self, work):
        if self.missing is not None:
            return
        try:
            self.figures[work].append(self.once(WORK[work]))
        except (RuntimeError, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            self.missing = str(error)

    def show(self, off):
        if self.missing is not None:
            print(f"{self.name}: not here: {self.missing}")
            return
        cells = []
        for work in WORK:
            # A ratio is of the same round.
            ratios = [here / there for here, there in zip(self.figures[work], off.figures[work])]
            cells.append(f"{statistics.median(self.figures[work]):8.1f}" + (f" {statistics.median(ratios):5.2f}x" if off is not self and ratios else "       "))
        print(f"{self.name:24}" + "".join(f"{cell:>17}" for cell in cells), flush=True)


def baton_modes(options, servers):
    # One server has one draft of the model: a 4-bit copy, or a model of its own.
    drafts = [(["--self-draft"], {"off": "off", "ngram": "ngram", "auto": "auto", "self": "self"})]
    if options.draft_model is None:
        print("baton draft: not here: no --draft-model was given")
    else:
        drafts.append((["--draft-model", options.draft_model], {"draft": "draft-model"}))
    for flags, hows in drafts:
        try:
            server = servers.enter_context(BatonServer(options, flags))
        except (RuntimeError, OSError) as error:
            print(f"baton {', '.join(hows)}: not here: {error}")
            continue
        for name, how in hows.items():
            yield Mode("baton", name, lambda prompt, how=how, server=server: server.tokens_per_second(how, prompt))


def llama_server_modes(options, servers):
    folder = pathlib.Path(options.llama or ".")
    program = next((path for path in (folder / "llama-server", folder / "bin" / "llama-server", folder / "build" / "bin" / "llama-server") if path.exists()), None)
    if options.llama is None or program is None:
        print("llama.cpp: not here: give --llama DIR with a built llama-server in it")
        return
    common = ["--model", options.model] + (["--threads", str(options.threads)] if options.threads else [])
    for name, flags, missing in llama_modes(program, options.draft_model):
        if missing is None:
            try:
                server = servers.enter_context(LlamaServer(program, common + flags))
            except (RuntimeError, OSError) as error:
                missing = error
        if missing is not None:
            print(f"llama.cpp {name}: not here: {missing}")
            continue
        yield Mode("llama.cpp", name, lambda prompt, server=server: server.tokens_per_second(prompt, options.tokens))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", help="folder of a built llama.cpp that has llama-server, or its bin")
    parser.add_argument("--model", help="GGUF file, which both load")
    parser.add_argument("--draft-model", help="GGUF file of a smaller model with the same tokenizer, which both load")
    parser.add_argument("--weights", default="stored", help="what Baton keeps its matrices as (baton generate --weights)")
    parser.add_argument("--threads", type=int, default=0, help="of each; 0: its own default")
    parser.add_argument("--tokens", type=int, default=200, help="of each answer")
    parser.add_argument("--rounds", type=int, default=3, help="of each figure; medians are shown")
    options = parser.parse_args()
    if not options.model or not pathlib.Path(options.model).exists():
        print(f"the model {options.model or ''} is not here: give --model FILE.gguf")
        return 0
    if options.draft_model and not pathlib.Path(options.draft_model).exists():
        print(f"the draft model {options.draft_model} is not here")
        return 0
    with contextlib.ExitStack() as servers:
        modes = [*baton_modes(options, servers), *llama_server_modes(options, servers)]
        for _ in range(options.rounds):
            for work in WORK:
                for mode in modes:
                    mode.measure(work)
        print(f"{'tokens/s, ratio':24}" + "".join(f"{work:>17}" for work in WORK))
        for mode in modes:
            mode.show(next(other for other in modes if other.program == mode.program))
    return 0


if __name__ == "__main__":
    sys.exit(main())
