#!/usr/bin/env python3
"""Runs what needs a GPU, in parts: every part is a process of its own with a time limit, so that one that fails,
crashes or hangs costs no other. Needs Python's standard library; PyTorch only for the parts that measure it or make a
model.

    run [--stage right|fast|serve|rehearse|all] [--budget SECONDS] [--results DIR] [--archive FILE] [--again] [--quick]

right     the wgmma kernel's proof, all GPU tests, the services on one GPU over each link, a first figure, memcheck
fast      benchmarks of kernels, whole steps and the nccl link, the same in PyTorch, the profiler's view of four kernels
serve     two workers of a random 8B model on one GPU under load
rehearse  the services by the CPU backend, on a machine without a GPU: whether the pack is whole

The table in DIR is written again after each part, logs lie beside it, and a second call goes on with the parts that have
not passed. FILE is a .tar.gz of DIR. Fails if a part does or if there is no time for it; a part that lacks a tool is
named and fails nothing.
"""
import argparse
import dataclasses
import glob
import os
import pathlib
import re
import shutil
import signal
import site
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PACKED = (HERE / "commit").exists()
CUDA = os.environ.get("CUDA_PATH") or "/usr/local/cuda"  # a toolkit, if there is one
LEAST = 15  # seconds: in less no part gets anywhere
PROFILED = ("DecodeKernel", "WgmmaPrefillKernel", "PrefillKernel", "BestKernel")  # the fourth launch of each
# Few and short ones: memcheck makes a kernel some fifty times slower.
CHECKED = "KernelsGpuTest.*:Shapes/*.BothInOneBatch/?"


@dataclasses.dataclass
class Part:
    """One process, or one per shard of a GoogleTest program."""
    name: str
    limit: int  # seconds
    command: list
    shards: int = 1
    environment: dict = dataclasses.field(default_factory=dict)
    missing: str = ""  # why it can't run here


def cuda_libraries(extra):
    """Folders with cuBLASLt, NCCL and what they load: a toolkit's, or those that PyTorch's wheels bring along."""
    found = list(extra)
    found += [folder for folder in (f"{CUDA}/lib64", f"{CUDA}/targets/x86_64-linux/lib")
              if os.path.exists(f"{folder}/libcublasLt.so.13")]
    for packages in dict.fromkeys([*site.getsitepackages(), *sys.path]):
        found += [folder for part in ("cu13", "nccl") if os.path.isdir(folder := f"{packages}/nvidia/{part}/lib")]
    return found


def has_torch():
    try:
        return subprocess.run([sys.executable, "-c", "import torch, sys; sys.exit(not torch.cuda.is_available())"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=180).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def tool(name):
    return shutil.which(name) or shutil.which(name, path=f"{CUDA}/bin")


class Run:
    def __init__(self, options):
        self.options = options
        self.begin = time.monotonic()
        self.bins = [pathlib.Path(folder).resolve() for folder in options.bin] or [HERE / "bin"]
        self.model = pathlib.Path(options.model or HERE / "model").resolve()
        self.commit = options.commit or (HERE / "commit").read_text().strip()
        self.results = pathlib.Path(options.results).resolve()
        self.results.mkdir(parents=True, exist_ok=True)
        libraries = [str(HERE / "lib")] if PACKED else []
        libraries += cuda_libraries(options.libraries) + os.environ.get("LD_LIBRARY_PATH", "").split(":")
        # For our programs alone: PyTorch and the machine's own keep their libraries.
        self.ours = {"LD_LIBRARY_PATH": ":".join(filter(None, libraries)), "BATON_TEST_MODEL": str(self.model),
                     "NCCL_SOCKET_IFNAME": "lo"}
        self.known = []  # parts of all stages
        self.parts = []  # those that this call runs
        self.failed = False
        self.starting, self.ended = False, False
        # Parts are in groups of their own: they end with this process only if it ends them.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.end)

    def end(self, *_):
        """Ends it all, once, and not where a process may be that is not in a list yet."""
        first, self.ended = not self.ended, True
        if first and not self.starting:
            sys.exit("gpu: ended by a signal")

    def program(self, name):
        return next((str(folder / name) for folder in self.bins if (folder / name).exists()), str(self.bins[0] / name))

    # The stages' parts.

    def plan(self):
        quick = ["--quick"] if self.options.quick else []
        torch = "" if self.options.stage in ("right", "rehearse") or has_torch() else "no PyTorch with CUDA here"
        folder = self.program("baton-router").rpartition("/")[0]
        relay = [sys.executable, "-B", str(HERE / "relay.py"), "--bin", folder, "--model", str(self.model)]
        ucx = ["--ucx-lib", self.options.ucx] if self.options.ucx else []
        big = str(self.results / "random-8b")

        def bench(*only):
            return [self.program("gpu_bench"), f"--commit={self.commit}", f"--only={','.join(only)}"]

        def script(name, *arguments):
            return [sys.executable, "-B", str(HERE / name), *arguments]

        stages = {
            "right": [
                self.own("proof-wgmma", 60, [self.program("baton-prefill"), "--check-prefill-attention", "0"]),
                self.own("test-kernels", 200, [self.program("gpu_kernels_test"), "--gtest_color=no"], shards=12),
                self.own("test-model", 150, [self.program("gpu_model_test"), "--gtest_color=no"], shards=4),
                self.own("test-link", 150, [self.program("gpu_link_test"), "--gtest_color=no"]),
                *(self.own(f"relay-{link}", 150, [*relay, *ucx, "--links", link, "--budget", "140",
                                                  "--results", str(self.results / f"relay-{link}")])
                  for link in ("host", "ucx", "nccl")),
                self.own("bench-first", 90, [*bench("decode"), "--quick"]),
                self.own("memcheck", 150, [tool("compute-sanitizer"), "--tool", "memcheck", "--error-exitcode", "9",
                                           self.program("gpu_kernels_test"), "--gtest_color=no",
                                           f"--gtest_filter={CHECKED}"],
                         missing="" if tool("compute-sanitizer") else "no compute-sanitizer here"),
            ],
            "fast": [
                self.own("bench-steps", 240, [*bench("decode", "prefill"), *quick]),
                self.own("bench-attention", 120, [*bench("attention", "draw"), *quick]),
                Part("peer-torch", 240, script("torch_peer.py", "--take", "best", *quick), missing=torch),
                self.own("bench-link", 90, [self.program("gpu_link_bench"), *quick]),
                self.own("bench-products", 200, [*bench("products"), *quick]),
                self.own("profile", 150, [tool("ncu"), "--clock-control", "none", "--section", "SpeedOfLight",
                                          "--section", "MemoryWorkloadAnalysis", "--section", "WarpStateStats",
                                          f"--kernel-id=::regex:^({'|'.join(PROFILED)})$:4",
                                          *bench("attention", "draw"), "--quick"],
                         missing="" if tool("ncu") else "no Nsight Compute here"),
            ],
            "serve": [
                Part("random-model", 180,
                     script("random_model.py", big, "--shape", "8b", "--tokenizer", str(self.model)), missing=torch),
                self.own("serve-8b", 420, script("serve_load.py", "--bin", folder, "--model", big, "--budget", "400",
                                                 "--results", str(self.results / "serve-8b"), *ucx),
                         missing=torch if not os.path.exists(f"{big}/model.safetensors") else ""),
            ],
            "rehearse": [
                self.own("rehearse-relay", 900, [*relay, "--backend", "cpu", "--links", "host,ucx", "--budget", "840",
                                                 *ucx, "--results", str(self.results / "rehearse-relay")]),
            ],
        }
        self.known = [part for parts in stages.values() for part in parts]
        names = ["right", "fast", "serve"] if self.options.stage == "all" else [self.options.stage]
        self.parts = [part for name in names for part in stages[name]]
        if self.options.only:
            only = self.options.only.split(",")
            if unknown := set(only) - {part.name for part in self.parts}:
                sys.exit(f"gpu: stage {self.options.stage} has no part {', '.join(sorted(unknown))}: "
                         f"it has {', '.join(part.name for part in self.parts)}")
            self.parts = [part for part in self.parts if part.name in only]

    def own(self, name, limit, command, **others):
        return Part(name, limit, command, environment=self.ours, **others)

    # How a part is run.

    def verdict_file(self, name):
        return self.results / f"{name}.verdict"

    def verdict(self, part):
        file = self.verdict_file(part.name)
        return file.read_text().strip() if file.exists() else "not run yet |"

    def set_verdict(self, part, text, seconds=""):
        self.verdict_file(part.name).write_text(f"{text} | {seconds}\n")
        self.write()

    def start(self, part, started):
        """Adds the part's processes to `started`, each the leader of its own group, so that nothing outlives it."""
        for shard in range(part.shards):
            name = part.name if part.shards == 1 else f"{part.name}.{shard}"
            environment = dict(os.environ, **part.environment)
            if part.shards > 1:
                environment |= {"GTEST_TOTAL_SHARDS": str(part.shards), "GTEST_SHARD_INDEX": str(shard)}
            log = self.results / f"{name}.log"
            with log.open("wb") as output:
                self.starting = True
                try:
                    process = subprocess.Popen(part.command, stdin=subprocess.DEVNULL, stdout=output,
                                               stderr=subprocess.STDOUT, env=environment, start_new_session=True)
                    started.append((process, log))
                finally:
                    self.starting = False
                if self.ended:
                    sys.exit("gpu: ended by a signal")

    @staticmethod
    def wait(process, seconds):
        """The exit code, or None."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def run(self, part):
        if self.verdict(part).startswith("passed") and not self.options.again:
            print(f"{part.name}: passed before")
            return
        if part.missing:
            self.set_verdict(part, f"not run: {part.missing}")
            return
        left = self.options.budget - (time.monotonic() - self.begin)
        if left < LEAST:
            self.failed = True
            self.set_verdict(part, f"not run: the {self.options.budget} s are over")
            return
        limit = min(part.limit, left)
        print(f"{part.name} (at most {limit:.0f} s)", flush=True)
        self.verdict_file(part.name).unlink(missing_ok=True)  # it would stay if this call were ended in the middle
        self.write()
        since = time.monotonic()
        started, codes = [], []
        try:
            self.start(part, started)
            for process, _ in started:
                codes.append(self.wait(process, max(0.1, limit - (time.monotonic() - since))))
        except OSError as error:
            self.failed = True
            self.set_verdict(part, f"FAILED ({error.strerror}: {part.command[0]})")
            return
        finally:
            for process, _ in started:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for process, _ in started:
                self.wait(process, 5)  # one that is stuck in a driver ends in its own time
        seconds = f"{time.monotonic() - since:.0f}"
        bad = [(code, log) for code, (_, log) in zip(codes, started) if code != 0]
        if not bad:
            self.set_verdict(part, "passed", seconds)
            return
        self.failed = True
        word = "NO END within its limit" if any(code is None for code, _ in bad) else f"FAILED ({bad[0][0]})"
        self.set_verdict(part, word, seconds)
        for _, log in bad[:3]:
            self.show(log)

    @staticmethod
    def show(log):
        """The lines of a log that say why, or else its end."""
        lines = log.read_text(errors="replace").splitlines()
        telling = [i for i, line in enumerate(lines) if re.search(r"Failure|[Ee]rror|Check failed|FAILED", line)][:6]
        shown = sorted({j for i in telling for j in range(i, i + 8)}) or range(len(lines) - 25, len(lines))
        print(f"--- {log.name}")
        print("\n".join(lines[i] for i in shown if 0 <= i < len(lines)), flush=True)

    # Results.

    @staticmethod
    def machine():
        wanted = "name,driver_version,memory.total,clocks.sm,clocks.max.sm"
        try:
            return subprocess.run(["nvidia-smi", f"--query-gpu={wanted}", "--format=csv"], capture_output=True,
                                  text=True, timeout=60).stdout
        except (OSError, subprocess.TimeoutExpired):
            return "no GPU here: nvidia-smi does not answer\n"

    def write(self):
        """All results so far, of earlier calls too."""
        shown = [part for part in self.known if part in self.parts or self.verdict_file(part.name).exists()]
        lines = [f"# GPU results of commit {self.commit}", ""] + [f"    {line}" for line in self.facts.splitlines()]
        lines += ["", "| part | verdict | seconds |", "|---|---|---|"]
        lines += [f"| {part.name} | {self.verdict(part)} |" for part in shown]
        for part in shown:
            log = self.results / f"{part.name}.log"
            if part.name.startswith(("test-", "proof-", "memcheck", "profile", "random-")) or not log.exists():
                continue
            # Tables and their captions; the rest of the output is in the log.
            rows = [line for line in log.read_text(errors="replace").splitlines()
                    if re.match(r"\||NVIDIA|PyTorch|Prefill|No |Not ", line)]
            lines += ["", f"## {part.name}", ""] + (rows or [f"no figures: see {log.name}"])
        (self.results / "results.new").write_text("\n".join(lines) + "\n")
        (self.results / "results.new").rename(self.results / "results.md")

    def check_libraries(self):
        asked = subprocess.run(["ldd", self.program("gpu_link_test")], capture_output=True, text=True,
                               env=dict(os.environ, **self.ours))
        missing = re.findall(r"(\S+) => not found", asked.stdout)
        if missing:
            sys.exit(f"gpu: no {' '.join(missing)} here: install CUDA 13 with NCCL, or name its folder in "
                     "LD_LIBRARY_PATH")

    def all(self):
        if self.options.stage != "rehearse":
            self.check_libraries()
        self.facts = self.machine()
        said = self.results / "commit"
        if not said.exists() or said.read_text() != self.commit:  # verdicts are of one commit
            for old in glob.glob(f"{self.results}/*.verdict") + glob.glob(f"{self.results}/*.log"):
                os.remove(old)
            said.write_text(self.commit)
        self.plan()
        self.write()
        for part in self.parts:
            self.run(part)
        print((self.results / "results.md").read_text())
        if self.options.archive:
            with tarfile.open(self.options.archive, "w:gz") as archive:
                archive.add(self.results, "gpu-results",
                            filter=lambda info: None if "random-8b" in info.name else info)
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", choices=("right", "fast", "serve", "rehearse", "all"), default="all")
    parser.add_argument("--only", default="", help="names of parts, with commas between")
    parser.add_argument("--budget", type=int, default=1500,
                        help="seconds in all (default 1500); where one command may take 10 minutes, 540")
    parser.add_argument("--results", default="gpu-results", help="folder of logs and verdicts")
    parser.add_argument("--archive", help="a .tar.gz of it, at the end")
    parser.add_argument("--again", action="store_true", help="run parts that have passed before too")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions of benchmarks")
    # Given by scripts/gpu where nothing is packed.
    parser.add_argument("--bin", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--model", help=argparse.SUPPRESS)
    parser.add_argument("--commit", help=argparse.SUPPRESS)
    parser.add_argument("--libraries", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--ucx", default=str(HERE / "ucx") if PACKED else "", help=argparse.SUPPRESS)
    return Run(parser.parse_args()).all()


if __name__ == "__main__":
    sys.exit(main())
