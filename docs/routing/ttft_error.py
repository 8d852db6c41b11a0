#!/usr/bin/env python3
"""How far simulated first tokens are from real ones: python3 docs/routing/ttft_error.py [--help]

Serves a model on this machine, fits a profile to one trace of short sessions, plays another such trace, simulates
that one with the profile, and compares request by request. Takes about two minutes, and a quiet machine if the
figures are to say anything about the model of the machine rather than about its neighbours.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = 512
PHASES = ("prefill_queue", "prefill", "transfer", "rest")


def sessions(seed, requests, rate):
    """Conversations that begin alike and grow by a hundred tokens or two a turn. A block that is not full yet keeps
    its id when it is: what it has so far is the same."""
    rng = random.Random(seed)
    base = seed * 1_000_000
    entries, at, session = [], 0.0, 0
    while len(entries) < requests:
        at += rng.expovariate(rate / 5)
        session += 1
        ids = [base] + [base + 10 * session + k for k in range(1, 5)]
        length, turn_at = rng.randrange(530, 900), at
        for _ in range(5):
            entries.append((turn_at, length, rng.randrange(8, 40), ids[: -(-length // BLOCK)]))
            length += rng.randrange(60, 260)
            turn_at += rng.expovariate(1.0)
    entries.sort()
    return entries[:requests]


def write(path, entries):
    with open(path, "w") as file:
        for at, prompt, output, ids in entries:
            file.write(json.dumps({"timestamp": int(at * 1000), "input_length": prompt, "output_length": output, "hash_ids": ids}) + "\n")


def lines(path):
    with open(path) as file:
        return sorted((json.loads(line) for line in file), key=lambda one: (one["at"], one["prompt_tokens"]))


def at(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def show(name, measured, simulated, ttft):
    off = [abs(s - m) for m, s in zip(measured, simulated)]
    of_ttft = [o / t for o, t in zip(off, ttft)]
    cells = [1e3 * at(measured, 0.5), 1e3 * at(simulated, 0.5), 1e3 * at(measured, 0.9), 1e3 * at(simulated, 0.9)]
    print(f"| {name} | " + " | ".join(f"{cell:.1f} ms" for cell in cells) + f" | {100 * at(of_ttft, 0.5):.0f}% | {100 * at(of_ttft, 0.9):.0f}% |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=ROOT / "build" / "release" / "bin", type=pathlib.Path, help="folder of the programs")
    parser.add_argument("--model", default=ROOT / "models" / "baton-tiny", type=pathlib.Path)
    parser.add_argument("--rate", default=3.0, type=float, help="requests per second")
    parser.add_argument("--requests", default=150, type=int)
    parser.add_argument("--seed", default=1, type=int)
    flags = parser.parse_args()
    baton = str(flags.bin / "baton")
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        seeds = (2 * flags.seed, 2 * flags.seed + 1)
        fitted, judged = (sessions(seed, flags.requests, flags.rate) for seed in seeds)
        write(home / "fitted.jsonl", fitted)
        write(home / "judged.jsonl", judged)
        serve = subprocess.Popen(
            [baton, "serve", "--model", str(flags.model), "--threads", "1", "--local-prefill-tokens", "0", "--listen", "127.0.0.1:0",
             "--metrics", "127.0.0.1:0", "--log-level", "error", "--exit-with-parent", "--announce", str(home / "announced")],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            while not (home / "announced").exists():
                if serve.poll() is not None:
                    raise SystemExit("baton serve ended before it was ready")
                time.sleep(0.1)
            server = json.loads((home / "announced").read_text())["router"]
            bench = [baton, "bench", "--server", server, "--warmup", "10"]
            subprocess.run(bench + ["--trace", str(home / "fitted.jsonl"), "--profile", str(home / "fleet.json")], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(bench + ["--trace", str(home / "judged.jsonl"), "--record", str(home / "measured.jsonl")], check=True, stdout=subprocess.DEVNULL)
        finally:
            serve.stdin.close()
            serve.wait()
        span = (judged[-1][0] - judged[0][0]) or 1
        subprocess.run(
            [baton, "simulate", "--trace", str(home / "judged.jsonl"), "--rates", f"{len(judged) / span:.4f}", "--fleet", str(home / "fleet.json"),
             "--policies", "prefix_affinity", "--default-ttft-deadline", "0", "--record", str(home / "simulated.jsonl")], check=True, stdout=subprocess.DEVNULL)
        profile = json.loads((home / "fleet.json").read_text())
        measured, simulated = lines(home / "measured.jsonl"), lines(home / "simulated.jsonl")
    if [one["prompt_tokens"] for one in measured] != [one["prompt_tokens"] for one in simulated]:
        raise SystemExit("not every request was answered, or not in order: nothing to compare")
    print(f"load after: {os.getloadavg()[0]:.1f}; {len(measured)} requests; profile: {profile['comment']}\n")
    ttft = [one["ttft"] for one in measured]
    print("| | measured p50 | simulated p50 | measured p90 | simulated p90 | off by, of TTFT, median | p90 |\n|---|---|---|---|---|---|---|")
    for phase in PHASES + ("ttft",):
        show(phase, [one[phase] for one in measured], [one[phase] for one in simulated], ttft)
    worked = [sum(one[phase] for phase in PHASES[:3]) for one in measured]
    show("router's own prediction", worked, [one["predicted_ttft"] for one in measured], ttft)
    cached = [sum(one["cached_tokens"] for one in run) / sum(one["prompt_tokens"] for one in run) for run in (measured, simulated)]
    print(f"\ncached: measured {100 * cached[0]:.0f}%, simulated {100 * cached[1]:.0f}%")


if __name__ == "__main__":
    main()
