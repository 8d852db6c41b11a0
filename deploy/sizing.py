#!/usr/bin/env python3
"""Makes the runbook's sizing table: `baton plan` on a profile that `baton bench --profile` measured, for a few loads.

    deploy/sizing.py [--check]     --check changes nothing and fails if the table is not what the profile gives
"""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build" / "release" / "bin"))
RUNBOOK = ROOT / "deploy" / "runbook.md"
PROFILE = "deploy/profiles/baton-tiny-cpu.json"
LOAD = "--prompt-tokens lognormal:600:0.6 --output-tokens 100 --hit-rate 0.4 --slo-ttft 2s --slo-tpot 50ms --kv-memory 256MiB"
RATES = (5, 20, 80, 320)
BEGIN, END = "<!-- made by deploy/sizing.py -->\n", "<!-- end -->\n"


def plan(rate):
    command = [BIN / "baton", "plan", "--profile", ROOT / PROFILE, "--rate", str(rate), *LOAD.split(), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def table():
    lines = [
        f"    baton plan --profile {PROFILE} --rate RATE {LOAD}\n",
        "| requests/s | prefill workers | busy | decode workers | mean batch | TTFT p95 | TPOT | a sender's link |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for rate in RATES:
        made = plan(rate)
        prefill, decode = made["prefill"], made["decode"]
        lines.append(
            f"| {rate} | {made['prefill_workers']} | {prefill['utilization']:.0%} | {made['decode_workers']} | {decode['batch']:.1f} "
            f"| {prefill['ttft_p95'] * 1e3:.0f} ms | {decode['tpot'] * 1e3:.2f} ms | {made['link']['used']:.0%} |"
        )
    return "\n".join(lines) + "\n"


def main():
    text = RUNBOOK.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    made = before + BEGIN + table() + END + after
    if "--check" in sys.argv[1:]:
        if made != text:
            sys.exit("the runbook's sizing table is not what its profile gives: run deploy/sizing.py")
        return
    RUNBOOK.write_text(made)


if __name__ == "__main__":
    main()
