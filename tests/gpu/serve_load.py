#!/usr/bin/env python3
"""The service under load on one GPU: a prefill and a decode worker of one model, over the host link and over ucx.

Two workers on one GPU share it by time slices: figures of both at work are those of a try-out, not of a fleet. What each
costs alone is measured beside it: prompts of which the decode worker computes everything, with no prefill worker there.
Prints a Markdown table, a row per load. Exit code 1: a load failed, or time was over.
"""
import json
import sys

import relay

# name, arguments of `baton bench`
LOADS = (
    ("2,048 in, 128 out, 1 at a time", ("-c", 1, "--requests", 6, "--prompt-tokens", 2048, "--output-tokens", 128)),
    ("2,048 in, 128 out, 16 at a time", ("-c", 16, "--requests", 48, "--prompt-tokens", 2048, "--output-tokens", 128)),
    ("2,048 in, 128 out, 64 at a time", ("-c", 64, "--requests", 128, "--prompt-tokens", 2048, "--output-tokens", 128)),
    ("8,192 in, 64 out, 1 at a time", ("-c", 1, "--requests", 4, "--prompt-tokens", 8192, "--output-tokens", 64)),
    ("5 turns of 1,000 in and 100 out, 4 at a time",
     ("-c", 4, "--requests", 40, "--turns", 5, "--prompt-tokens", 1000, "--output-tokens", 100)),
)
FLEETS = {"host": ("host", "host", True), "ucx": ("ucx", "ucx", True), "alone": ("decode worker alone", "host", False)}


class Loads:
    """The loads on one fleet after the other."""

    def __init__(self, flags):
        self.flags, self.machine = flags, relay.Machine(flags.budget)
        self.report = relay.Report(self.machine)
        self.rows = []

    def bench(self, fleet, name, arguments):
        """One load; the note has its figures."""
        path = fleet.path("bench.json")
        code, _, errors = self.machine.baton(self.flags.bin, 120, "bench", "--server",
                                             fleet.ports["router"]["grpc"], *arguments, "--json", path)
        if code != 0:
            raise relay.Failed(f"exit code {code}: {errors[-300:]}")
        result = json.loads(path.read_text())
        path.rename(fleet.path(f"{name.replace(' ', '-').replace(',', '')}.json"))
        requests = result["requests"]
        self.rows.append((fleet.label, name, result))
        if requests.get("failed"):
            raise relay.Failed(f"{requests}, {result.get('errors')}")
        return f"TTFT {result['ttft']['p50'] * 1e3:.1f} ms, TPOT {result['tpot']['p50'] * 1e3:.2f} ms"

    def run(self, label, link, with_prefill):
        """All loads on one fleet, and its end."""
        fleet = relay.Fleet(self, link, self.flags.backend)
        fleet.label, fleet.name = label, label.replace(" ", "-")
        roles = ("prefill", "decode") if with_prefill else ("decode",)

        def start():
            return fleet.start_all(roles, "--default-ttft-deadline", 0)
        if self.report.check(f"{label}: starts", start, fleet.logs) == relay.OK:
            for name, arguments in LOADS:
                self.report.check(f"{label}: {name}", lambda n=name, a=arguments: self.bench(fleet, n, a), fleet.logs)
            if with_prefill:
                self.report.check(f"{label}: SIGTERM ends all within 30 s, exit codes 0", fleet.stop, fleet.logs)
        self.machine.kill(fleet.processes.values())

    def table(self):
        """The figures."""
        print("\n| fleet | load | TTFT p50, ms | TTFT p99, ms | TPOT p50, ms | TPOT p99, ms | tokens/s out | requests/s |")
        print("|---|---|---:|---:|---:|---:|---:|---:|")
        for label, name, r in self.rows:
            print(f"| {label} | {name} | {r['ttft']['p50'] * 1e3:.1f} | {r['ttft']['p99'] * 1e3:.1f} "
                  f"| {r['tpot']['p50'] * 1e3:.2f} | {r['tpot']['p99'] * 1e3:.2f} | {r['tokens']['output_per_second']:.0f} "
                  f"| {r['requests']['per_second']:.2f} |")


def main():
    parser = relay.flags_of(__doc__, "10GiB")
    parser.add_argument("--fleets", default="host,ucx,alone", help="host, ucx and alone, with commas between")
    flags = parser.parse_args()
    flags.results.mkdir(parents=True, exist_ok=True)
    loads = Loads(flags)
    try:
        for name in flags.fleets.split(","):
            label, link, with_prefill = FLEETS[name]
            loads.run(label, link, with_prefill)
    finally:
        loads.machine.close()
        loads.table()
        loads.report.end()
    return 1 if loads.report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
