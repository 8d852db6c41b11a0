#!/usr/bin/env python3
"""What running answers lose by long prompts, and how far predicted first tokens are off: python3 interference.py --model DIR

Serves a model on this machine with one prefill and one decode worker. First come a few prompts one by one, the very
first requests that the router sees; then a number of answers run, alone and once more beside long prompts; then, on
a fresh service, as many long prompts as are asked for at once. The baseline is a decode worker with nothing beside it,
bound to the last core. Takes some minutes with a model of 0.4 B parameters on two cores. The machine should do nothing
else meanwhile.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Service:
    """`baton serve`, for as long as the block lasts."""

    def __init__(self, flags, home, command=(), serve=None):
        self.flags, self.home, self.command, self.serve = flags, home, list(command), flags.serve if serve is None else serve

    def __enter__(self):
        announced = self.home / "announced"
        announced.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            self.command + [str(self.flags.bin / "baton"), "serve", "--model", str(self.flags.model), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
             "--log-level", "warn", "--exit-with-parent", "--announce", str(announced)] + self.serve,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        while not announced.exists():
            if self.process.poll() is not None:
                raise SystemExit("baton serve ended before it was ready")
            time.sleep(0.05)
        self.server = json.loads(announced.read_text())["router"]
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def bench(self, name, requests, concurrency, prompt, output, seed):
        """Starts a load; result(name) waits for it."""
        return subprocess.Popen(
            [str(self.flags.bin / "baton"), "bench", "--server", self.server, "--requests", str(requests), "-c", str(concurrency), "--prompt-tokens",
             str(prompt), "--output-tokens", str(output), "--seed", str(seed), "--json", str(self.home / f"{name}.json"), "--record",
             str(self.home / f"{name}.jsonl")], stdout=subprocess.DEVNULL)

    def result(self, name):
        with open(self.home / f"{name}.jsonl") as file:
            requests = [json.loads(line) for line in file]
        return json.loads((self.home / f"{name}.json").read_text()), requests

    def run(self, name, *load):
        if self.bench(name, *load).wait() != 0:
            raise SystemExit(f"{name}: the load test failed")
        return self.result(name)


def show_predictions(title, requests):
    print(f"\n{title}\n\n| prompt | TTFT predicted | TTFT measured | off by | waited | computed |\n|---|---|---|---|---|---|")
    for one in requests:
        predicted, measured = one["predicted_ttft"], one["ttft"]
        off = max(predicted / measured, measured / max(predicted, 1e-9))
        print(f"| {one['prompt_tokens']} | {predicted:.2f} s | {measured:.2f} s | {off:.2f}x | {one['prefill_queue']:.2f} s | {one['prefill']:.2f} s |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=ROOT / "build" / "release" / "bin", type=pathlib.Path, help="folder of the programs")
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--streams", default=4, type=int)
    parser.add_argument("--stream-tokens", default=300, type=int)
    parser.add_argument("--prompts", default=4, type=int, help="beside the streams; then that many at once")
    parser.add_argument("--prompts-at-a-time", default=2, type=int, help="beside the streams")
    parser.add_argument("--prompt-tokens", default=2048, type=int)
    parser.add_argument("--serve", default=[], action="append", help="a further flag of baton serve, as --serve=--threads=2")
    flags = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        streams = (flags.streams, flags.streams, 64, flags.stream_tokens)
        with Service(flags, home, ("taskset", "-c", str(os.cpu_count() - 1)), ["--prefill", "0"]) as service:
            service.run("warm", 1, 1, 64, 16, 9)
            baseline, _ = service.run("baseline", *streams, 30)
        with Service(flags, home) as service:
            first = []
            for i, tokens in enumerate((flags.prompt_tokens, 300, 1000, flags.prompt_tokens, 500)):
                first += service.run(f"first{i}", 1, 1, tokens, 2, 10 + i)[1]
            show_predictions("One by one, from the first request on:", first)
            alone, _ = service.run("alone", *streams, 30)
            beside = service.bench("beside", *streams, 31)
            time.sleep(2)
            _, prompts = service.run("prompts", flags.prompts, flags.prompts_at_a_time, flags.prompt_tokens, 2, 32)
            if beside.poll() is not None:
                print("(the streams ended before the prompts: raise --stream-tokens)")
            beside.wait()
            beside, _ = service.result("beside")
        show_predictions(f"Beside {flags.streams} streams, {flags.prompts_at_a_time} at a time:", prompts)
        print("\n| streams | TPOT, mean | ITL p50 | ITL p99 | worst gap |\n|---|---|---|---|---|")
        for name, run in (("on a decode worker alone, on one core", baseline), ("on all cores", alone), ("beside the prompts", beside)):
            itl = run["itl"]
            print(f"| {name} | {1e3 * run['tpot']['mean']:.0f} ms | {1e3 * itl['p50']:.0f} ms | {1e3 * itl['p99']:.0f} ms | {1e3 * itl['max']:.0f} ms |")
        for name, run in (("one core", baseline), ("all cores", alone)):
            print(f"| beside over {name} | {beside['tpot']['mean'] / run['tpot']['mean']:.2f}x | | | {beside['itl']['max'] / run['itl']['max']:.2f}x |")
        with Service(flags, home) as service:
            _, prompts = service.run("burst", flags.prompts, flags.prompts, flags.prompt_tokens, 2, 40)
        show_predictions("At once, the first requests of a fresh service:", prompts)
    print(f"\nload after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
