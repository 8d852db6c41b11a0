#!/usr/bin/env python3
"""Plays what the README's picture shows, on this machine, and draws it: conversations with a relay of two prefill and two decode workers; a worker of
each kind is killed; then comes several times the load that the machine can bear. It takes over two minutes, wants a release build
and nothing else to run meanwhile. Rates are for two cores.

    deploy/observability/scene.py [--out docs/dashboard.svg] [--rate 1] [--overload 14]
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import picture

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The relay and the Prometheus are those of the tests.
sys.path.insert(0, str(ROOT / "tests" / "deploy"))
from relay import BIN, Process, Prometheus, Relay, until  # noqa: E402

SLO = {"--slo-ttft": "0.5", "--slo-tpot": "0.02"}
# A request whose first token is predicted later than the SLO is refused; the load sets no deadlines of its own, which would count instead.
SERVICE = [word for pair in SLO.items() for word in pair] + ["--default-ttft-deadline", "0.5"]
TALK = "--prompt-tokens lognormal:200:0.6 --output-tokens uniform:30:120 --shared-prefix-tokens 256 --prefix-groups 6 --turns 4 --think 1"
# Seconds from the beginning.
PREFILL_DIES, DECODE_DIES, FLOOD, FLOOD_SECONDS, END = 25, 50, 75, 20, 120


def bench(relay, seed, rate, seconds):
    command = [BIN / "baton", "bench", "--server", relay.router, "--rate", rate, "--duration", f"{seconds}s", "--seed", seed, "--max-in-flight", 400]
    return Process(command + TALK.split())


def commit():
    said = subprocess.run([BIN / "baton", "version"], check=True, capture_output=True, text=True).stdout
    return re.search(r"commit (\w{7})", said)[1]


def play(rate, overload):
    """(the drawing, as text)"""
    with tempfile.TemporaryDirectory() as folder:
        relay = Relay(folder, more=SERVICE)
        prometheus = Prometheus(str(relay.observability / "prometheus.yml"), os.path.join(folder, "data"))
        loads, marks = [], []
        try:
            until(lambda: len(prometheus.query("up == 1")) == 5, "five processes scraped")
            begin = time.time()
            wait = threading.Event().wait  # for a moment of the script: nothing is waited for but time itself
            reach = lambda second: wait(max(0, begin + second - time.time()))
            loads.append(bench(relay, 1, rate, END))
            for second, worker in ((PREFILL_DIES, "prefill-1"), (DECODE_DIES, "decode-1")):
                reach(second)
                os.kill(relay.pid(worker), signal.SIGKILL)
                marks.append((time.time(), f"a {worker.split('-')[0]} worker is killed, and comes back"))
            reach(FLOOD)
            loads.append(bench(relay, 2, overload, FLOOD_SECONDS))
            marks.append((time.time(), f"for {FLOOD_SECONDS} s, {(rate + overload) / rate:.0f} times the conversations"))
            reach(END)
            caption = (
                f"A relay of 2 prefill and 2 decode workers with models/baton-tiny on {os.cpu_count()} CPU cores, commit {commit()}, "
                f"{rate:g} conversations/s of 4 turns, {len(relay.announcement['processes'])} processes."
            )
            return picture.picture(prometheus.address, begin + 5, time.time(), marks, caption)
        finally:
            for process in [*loads, prometheus, relay]:
                process.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(ROOT / "docs" / "dashboard.svg"))
    parser.add_argument("--rate", type=float, default=1, help="conversations per second all the time")
    parser.add_argument("--overload", type=float, default=14, help="conversations per second that come on top for a while")
    given = parser.parse_args()
    pathlib.Path(given.out).write_text(play(given.rate, given.overload))


if __name__ == "__main__":
    main()
