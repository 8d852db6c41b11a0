#!/usr/bin/env python3
"""The cost of what Baton does with an answer besides computing it: parts, a schema, moderation. All in one run, on one service.

    tests/bench/answers/features.py [--model DIR] [--clients N] [--rounds N] [--tokens N]

Each round asks every mode once, one after the other: N clients at a time, each for one answer over HTTP. The model's end tokens end no answer
but one under a schema, and a blocked one ends early: the mean of their tokens is shown. Shown are the medians of TTFT and TPOT as the service measured them (baton_timing), and the median over the rounds of their
ratio to the mode `chat` of the same round. The classifier is models/baton-guard, whose one thread shares the processors with the model:
on a machine of its own it costs the model nothing.

    plain      /v1/completions: the text as it is
    chat       /v1/chat/completions: the same, and parts are looked for (thinking, calls)
    schema     chat under a JSON schema
    score      chat, judged while it is sent
    block      chat, held back until it is judged
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
BATON = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build" / "release" / "bin")) / "baton"
PROMPT = "Tell me about the fox, the owl and the long way to the sea."
# Members without end: no answer is complete before its last token.
SCHEMA = {
    "type": "object",
    "properties": {f"member_{i}": {"type": "string"} if i % 2 else {"type": "integer"} for i in range(200)},
    "required": [f"member_{i}" for i in range(200)],
    "additionalProperties": False,
}
MODES = {
    "plain": {},
    "chat": {},
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "long", "schema": SCHEMA}}},
    "score": {"moderation": {"policy": {"output": {"mode": "score"}}}},
    "block": {"moderation": {"policy": {"output": {"mode": "block"}}}},
}


@contextlib.contextmanager
def service(options):
    """The address of a service's HTTP, until the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        announced = pathlib.Path(folder) / "addresses.json"
        command = [BATON, "serve", "--model", options.model, "--moderation-model", ROOT / "models" / "baton-guard", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0",
                   "--metrics", "127.0.0.1:0", "--speculation", "off", "--announce", announced, "--exit-with-parent"]
        command += ["--weights", options.weights] if options.weights else []
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 300
            while not announced.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{' '.join(map(str, command))}: it is not ready; run it by itself to see why")
                time.sleep(0.2)  # between two looks
            yield json.loads(announced.read_text())["http"]
        finally:
            process.terminate()
            process.wait()
            process.stdin.close()


def ask(address, mode, number, tokens):
    """TTFT and TPOT of one answer, in seconds, and its tokens."""
    said = f"{PROMPT} ({number})"
    body = {"max_tokens": tokens, "ignore_eos": mode != "schema", "temperature": 1, "seed": number, "baton_timing": True, **MODES[mode]}
    body |= {"prompt": said} if mode == "plain" else {"messages": [{"role": "user", "content": said}]}
    path = "/v1/completions" if mode == "plain" else "/v1/chat/completions"
    request = urllib.request.Request(f"http://{address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            whole = json.load(answer)
    except urllib.error.HTTPError as refused:
        raise SystemExit(f"{mode}: {refused.read().decode()}") from refused
    timing = whole["choices"][0]["baton_timing"]
    return timing["ttft"], timing["tpot"], whole["usage"]["completion_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=ROOT / "models" / "baton-tiny")
    parser.add_argument("--weights", help="what matrices are kept as (baton serve --weights)")
    parser.add_argument("--clients", type=int, default=8, help="answers at a time")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=160, help="of each answer")
    options = parser.parse_args()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    print(f"{cpu}, {os.cpu_count()} processors; {options.clients} clients, answers of {options.tokens} tokens, {options.rounds} rounds")
    figures = {mode: [] for mode in MODES}  # by round: medians of TTFT and TPOT
    with service(options) as address, concurrent.futures.ThreadPoolExecutor(options.clients) as clients:
        for turn in range(-1, options.rounds):
            for mode in MODES:
                got = list(clients.map(lambda i: ask(address, mode, 1000 * turn + i + 1001, options.tokens), range(options.clients)))
                # Blocked at once, an answer has one token and no time between two.
                tpots = [tpot for _, tpot, _ in got if tpot is not None]
                if not tpots:
                    raise SystemExit(f"{mode}: all answers of a round were blocked at once; take another model")
                if turn >= 0:  # the first round warms up
                    figures[mode].append((statistics.median(ttft for ttft, _, _ in got), statistics.median(tpots), statistics.mean(tokens for _, _, tokens in got)))
    print(f"{'':8}{'TTFT':>12}{'ratio':>8}{'TPOT':>12}{'ratio':>8}{'tokens':>8}")
    for mode, rounds in figures.items():
        cells = []
        for i in (0, 1):
            ratio = statistics.median(mine[i] / base[i] for mine, base in zip(rounds, figures["chat"]))
            cells.append(f"{1000 * statistics.median(one[i] for one in rounds):9.2f} ms{ratio:7.2f}x")
        print(f"{mode:8}" + "".join(cells) + f"{statistics.mean(one[2] for one in rounds):8.0f}")


if __name__ == "__main__":
    main()
