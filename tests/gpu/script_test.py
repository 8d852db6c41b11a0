#!/usr/bin/env python3
"""run.py, what scripts/gpu runs and packs, with stand-ins for all that it starts: a part that fails or hangs costs no
other, results are written as they come, a second call goes on where the first one ended, and the time is bounded."""
import collections
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

RUN = pathlib.Path(__file__).resolve().parent / "run.py"
TABLE = 'echo "| what | measured | limit | ratio |"; echo "| it | 1 | 2 | 50% |"; echo noise'
FIGURES = "| it | 1 | 2 | 50% |"
SLEEP = shutil.which("sleep")
FOREVER = 1000  # seconds; more than any limit here
# Calls of all parts: of every stand-in, how many.
ALL = {"baton-prefill": 1, "gpu_kernels_test": 12, "gpu_model_test": 4, "gpu_link_test": 1, "relay.py": 3,
       "gpu_bench": 4, "compute-sanitizer": 1, "torch_peer.py": 1, "gpu_link_bench": 1, "ncu": 1, "random_model.py": 1,
       "serve_load.py": 1}
PARTS = 17
# A Python program of the pack; what it does besides comes behind.
PROGRAM = """import os, sys
with open({calls!r}, "a") as calls:
    calls.write(" ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
"""
PRINT_TABLE = f"print('| what |')\nprint({FIGURES!r})\nprint('noise')"
MAKE_MODEL = """os.makedirs(sys.argv[1], exist_ok=True)
open(os.path.join(sys.argv[1], "model.safetensors"), "w").close()
print("LD_LIBRARY_PATH", os.environ.get("LD_LIBRARY_PATH"))"""
PYTORCH = "class cuda:\n    is_available = staticmethod(lambda: {has_gpu})\n"


class Script(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="baton-gpu-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.out = self.home / "out"
        # A machine of our own making, whatever this one has: all tools but its shell are stand-ins, and so is PyTorch.
        for name in ("tools", "bin", "lib", "model", "packages/nvidia/cu13/lib", "cuda/bin", "cuda/lib64"):
            (self.home / name).mkdir(parents=True)
        (self.home / "cuda/lib64/libcublasLt.so.13").touch()
        self.tool("python3", f'exec "{sys.executable}" "$@"')
        self.tool("nvidia-smi", "echo 'GPU 0: a stand-in'")
        self.tool("ldd", "echo '  libc.so.6 => /lib/libc.so.6'")
        self.called_tool("compute-sanitizer")
        self.called_tool("ncu")
        self.pytorch(PYTORCH.format(has_gpu=True))
        # A pack.
        shutil.copy(RUN, self.home / "run.py")
        (self.home / "commit").write_text("abc123\n")
        for name in ("gpu_kernels_test", "gpu_model_test", "gpu_link_test", "gpu_bench", "gpu_link_bench",
                     "baton-prefill", "baton-router"):
            self.binary(name, TABLE)
        for name in ("relay.py", "serve_load.py", "torch_peer.py"):
            self.program(name, PRINT_TABLE)
        self.program("random_model.py", MAKE_MODEL)

    def write(self, path, body):
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def tool(self, name, body):
        self.write(self.home / "tools" / name, body)

    def called_tool(self, name):
        self.tool(name, f'echo "{name} $*" >>{self.home}/calls')

    def pytorch(self, body):
        (self.home / "packages" / "torch.py").write_text(body)

    def binary(self, name, body):
        self.write(self.home / "bin" / name, f'echo "{name} $*" >>{self.home}/calls\n{body}')

    def program(self, name, body):
        (self.home / name).write_text(PROGRAM.format(calls=str(self.home / "calls")) + body + "\n")

    def hang(self, code=0):
        """A body that leaves a process behind, whose id is in a file, and ends with a code; None: waits for it."""
        self.addCleanup(self.end_what_hangs)
        return f"{SLEEP} {FOREVER} & echo $! >>{self.home}/hanging; " + ("wait" if code is None else f"exit {code}")

    def hanging(self):
        file = self.home / "hanging"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    @staticmethod
    def is_alive(pid):
        """True while it runs: it hangs, and has neither gone nor ended."""
        try:
            what = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False
        return what.endswith(f"\0{FOREVER}\0".encode())  # of one that has ended it is empty

    def end_what_hangs(self):
        for pid in self.hanging():
            if self.is_alive(pid):
                os.kill(pid, signal.SIGKILL)

    def assert_nothing_hangs(self):
        self.assertTrue(self.hanging(), "nothing was left behind")
        end = time.monotonic() + 20  # until a kill is done: no figure of speed
        while any(map(self.is_alive, self.hanging())):
            self.assertLess(time.monotonic(), end, "it still runs")
            time.sleep(0.01)

    def popen(self, *flags, name="run.py"):
        """As one calls it there. The loader's path has a folder of that machine's own."""
        own = [str(self.home / "theirs"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GTEST_")}
        environment |= {"PATH": str(self.home / "tools"), "PYTHONPATH": str(self.home / "packages"),
                        "CUDA_PATH": str(self.home / "cuda"), "LD_LIBRARY_PATH": ":".join(own),
                        "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.Popen([self.home / name, "--results", self.out, *flags], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                                cwd=self.home)

    def start(self, *flags, name="run.py"):
        """Its exit code, output, errors."""
        with self.popen(*flags, name=name) as process:
            try:
                return self.end(process)
            finally:
                process.kill()

    @staticmethod
    def end(process):
        output, errors = process.communicate(timeout=200)
        return process.returncode, output, errors

    def run_it(self, *flags, **others):
        code, _, errors = self.start(*flags, **others)
        self.assertEqual(errors, "")
        return code, (self.out / "results.md").read_text()

    def changed(self, body):
        """The name of a run.py of which lines have changed something."""
        file = self.home / "changed"
        file.write_text(f"#!/usr/bin/env python3\nimport sys, time, run\n{body}\nsys.exit(run.main())\n")
        file.chmod(0o755)
        return "changed"

    def calls(self):
        """Since the last time: of every stand-in, how many, and the lines."""
        file = self.home / "calls"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        self.lines = lines
        return dict(collections.Counter(line.split()[0] for line in lines))

    def verdicts(self, table):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.split("\n## ")[0].splitlines()
                if line.startswith("| ")]
        return {name: verdict for name, verdict, _ in rows[1:]}

    def test_all_is_well(self):
        code, table = self.run_it()
        self.assertEqual(code, 0, table)
        self.assertIn("# GPU results of commit abc123\n\n    GPU 0: a stand-in\n", table)
        self.assertEqual(list(self.verdicts(table).values()), ["passed"] * PARTS)
        self.assertEqual(table.count(FIGURES), 10)
        self.assertNotIn("noise", table)
        self.assertEqual(self.calls(), ALL)

    def test_what_this_machine_lacks_is_named_and_nothing_failed(self):
        (self.home / "tools/compute-sanitizer").unlink()
        (self.home / "tools/ncu").unlink()
        self.pytorch("raise ImportError")
        code, table = self.run_it()
        self.assertEqual(code, 0, table)
        lacking = dict.fromkeys(("peer-torch", "random-model", "serve-8b"), "not run: no PyTorch with CUDA here")
        lacking |= {"memcheck": "not run: no compute-sanitizer here", "profile": "not run: no Nsight Compute here"}
        verdicts = self.verdicts(table)
        self.assertEqual({name: v for name, v in verdicts.items() if v != "passed"}, lacking)
        self.assertEqual(len(verdicts), PARTS)
        self.calls()
        # A PyTorch for CPUs is none. Tools may be in the toolkit's folder alone.
        self.pytorch(PYTORCH.format(has_gpu=False))
        self.called_tool("ncu")
        (self.home / "tools/ncu").rename(self.home / "cuda/bin/ncu")
        code, table = self.run_it()
        self.assertEqual((code, self.calls()), (0, {"ncu": 1}), table)
        self.assertEqual(self.verdicts(table)["peer-torch"], lacking["peer-torch"])
        self.called_tool("compute-sanitizer")
        self.pytorch(PYTORCH.format(has_gpu=True))
        code, table = self.run_it()
        self.assertEqual(code, 0, table)
        self.assertEqual(set(self.verdicts(table).values()), {"passed"})
        self.assertEqual(self.calls(),
                         {"compute-sanitizer": 1, "torch_peer.py": 1, "random_model.py": 1, "serve_load.py": 1})

    def test_a_part_that_fails_costs_no_other_and_is_run_again(self):
        self.binary("gpu_kernels_test", "echo 'Failure: wrong'; exit 3")
        self.binary("gpu_model_test", "kill -SEGV $$")
        (self.home / "bin/gpu_link_bench").unlink()
        code, output, errors = self.start()
        self.assertEqual((code, errors), (1, ""))
        self.assertIn("Failure: wrong", output)
        verdicts = self.verdicts((self.out / "results.md").read_text())
        self.assertEqual({name: v for name, v in verdicts.items() if v != "passed"},
                         {"test-kernels": "FAILED (3)", "test-model": "FAILED (-11)",
                          "bench-link": f"FAILED (No such file or directory: {self.home}/bin/gpu_link_bench)"})
        self.assertEqual(len(verdicts), PARTS)
        self.calls()
        for name in ("gpu_kernels_test", "gpu_model_test", "gpu_link_bench"):
            self.binary(name, "true")
        code, table = self.run_it()
        self.assertEqual(code, 0, table)
        self.assertEqual(set(self.verdicts(table).values()), {"passed"})
        self.assertEqual(self.calls(), {"gpu_kernels_test": 12, "gpu_model_test": 4, "gpu_link_bench": 1})

    def test_passed_parts_are_run_again_if_asked(self):
        self.run_it()
        self.calls()
        code, table = self.run_it()
        self.assertEqual((code, self.calls()), (0, {}), table)
        code, table = self.run_it("--again")
        self.assertEqual((code, self.calls()), (0, ALL), table)

    def test_a_part_that_hangs_costs_no_other_and_is_run_again(self):
        self.binary("gpu_model_test", self.hang(None))
        name = self.changed("""
plan = run.Run.plan
def shorter(self):
    plan(self)
    for part in self.parts:
        if part.name == "test-model":
            part.limit = 1
run.Run.plan = shorter""")
        code, table = self.run_it(name=name)
        self.assertEqual(code, 1)
        verdicts = self.verdicts(table)
        self.assertEqual({name: v for name, v in verdicts.items() if v != "passed"},
                         {"test-model": "NO END within its limit"})
        self.assertEqual(len(verdicts), PARTS)
        self.assert_nothing_hangs()
        self.calls()
        self.binary("gpu_model_test", "true")
        code, table = self.run_it()
        self.assertEqual((code, self.calls()), (0, {"gpu_model_test": 4}), table)

    def test_time_is_bounded_and_what_did_not_fit_is_named(self):
        # Less than any part needs: nothing starts.
        code, table = self.run_it("--budget", "14")
        self.assertEqual((code, self.calls()), (1, {}))
        self.assertEqual(list(self.verdicts(table).values()), ["not run: the 14 s are over"] * PARTS)
        # The first part, from whose start the time counts here, would pass within its own limit, which is 60 s.
        self.binary("baton-prefill", f"exec {SLEEP} 50")
        name = self.changed("""
run.LEAST = 1
one = run.Run.run
def timed(self, part):
    if part is self.parts[0]:
        self.begin = time.monotonic()
    one(self, part)
run.Run.run = timed""")
        code, table = self.run_it("--budget", "3", name=name)
        self.assertEqual((code, self.calls()), (1, {"baton-prefill": 1}))
        self.assertEqual(list(self.verdicts(table).values()),
                         ["NO END within its limit"] + ["not run: the 3 s are over"] * (PARTS - 1))
        self.binary("baton-prefill", "true")
        code, table = self.run_it()
        self.assertEqual((code, self.calls()), (0, ALL), table)
        self.assertEqual(set(self.verdicts(table).values()), {"passed"})

    def test_a_call_that_is_ended_leaves_nothing_behind(self):
        self.run_it("--stage", "right", "--only", "test-link")
        self.binary("gpu_link_test", self.hang(None))
        with self.popen("--stage", "right", "--only", "test-kernels,test-link", "--again") as process:
            try:
                while not self.hanging():
                    self.assertIsNone(process.poll())
                    time.sleep(0.01)
                process.terminate()
                self.assertEqual(self.end(process)[0], 1)
            finally:
                process.kill()
        self.assert_nothing_hangs()
        # Results so far are there. What the part was in an earlier call it is no longer.
        self.assertEqual(self.verdicts((self.out / "results.md").read_text()),
                         {"test-kernels": "passed", "test-link": "not run yet"})
        self.calls()
        self.binary("gpu_link_test", "true")
        code, table = self.run_it("--stage", "right", "--only", "test-link")
        self.assertEqual((code, self.calls()), (0, {"gpu_link_test": 1}), table)

    def test_what_a_part_leaves_behind_ends_with_it(self):
        self.binary("gpu_link_test", self.hang(0))
        self.binary("gpu_bench", self.hang(3))
        code, table = self.run_it("--stage", "right")
        self.assertEqual(code, 1)
        verdicts = self.verdicts(table)
        self.assertEqual((verdicts["test-link"], verdicts["bench-first"]), ("passed", "FAILED (3)"))
        self.assertEqual(len(self.hanging()), 2)
        self.assert_nothing_hangs()

    def test_shards(self):
        row = 'echo "$GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS" >>'
        self.binary("gpu_kernels_test", f"""{row} {self.home}/kernels
echo "kernels.cc:$GTEST_SHARD_INDEX: Failure"
[ "$GTEST_SHARD_INDEX" != 7 ] || exit 3""")
        self.binary("gpu_model_test", f"{row} {self.home}/model.shards")
        self.binary("gpu_link_test",
                    f'echo "${{GTEST_TOTAL_SHARDS-none}} ${{GTEST_SHARD_INDEX-none}}" >{self.home}/link')
        code, output, errors = self.start("--stage", "right")
        self.assertEqual((code, errors), (1, ""))

        def rows(name):
            return sorted((self.home / name).read_text().splitlines())
        self.assertEqual(rows("kernels"), sorted(f"{i} of 12" for i in range(12)))
        self.assertEqual(rows("model.shards"), [f"{i} of 4" for i in range(4)])
        self.assertEqual(rows("link"), ["none none"])
        verdicts = self.verdicts((self.out / "results.md").read_text())
        self.assertEqual({name: v for name, v in verdicts.items() if v != "passed"}, {"test-kernels": "FAILED (3)"})
        # The log of the one that failed, and no other.
        self.assertIn("--- test-kernels.7.log\nkernels.cc:7: Failure\n", output)
        self.assertEqual(output.count("--- "), 1, output)
        self.assertIn("kernels.cc:11: Failure", (self.out / "test-kernels.11.log").read_text())

    def test_pytorch_is_run_with_its_own_libraries(self):
        told = 'print("| torch |", os.environ["LD_LIBRARY_PATH"], "|", os.environ.get("BATON_TEST_MODEL"), "|")'
        self.program("torch_peer.py", told)
        self.program("random_model.py", MAKE_MODEL + "\n" + told)
        its_own = f"__import__('os').environ['LD_LIBRARY_PATH'].startswith('{self.home}/theirs')"
        self.pytorch(PYTORCH.format(has_gpu=its_own))
        for name in ("gpu_bench", "gpu_link_bench"):
            self.binary(name, 'echo "| ours | $LD_LIBRARY_PATH | $BATON_TEST_MODEL |"')
        self.program("relay.py", told.replace("torch", "relay"))
        code, table = self.run_it()
        self.assertEqual(code, 0, table)
        theirs = ":".join([f"{self.home}/theirs", *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        own = f"| torch | {theirs} | None |"
        self.assertEqual(self.verdicts(table)["peer-torch"], "passed")
        self.assertIn(own, table)
        self.assertIn(own, (self.out / "random-model.log").read_text())
        # The pack's, the toolkit's and those of PyTorch's wheels before the machine's own.
        ours = [line for line in table.splitlines() if line.startswith(("| ours |", "| relay |"))]
        self.assertEqual(len(ours), 8, table)
        for line in ours:
            _, _, path, model, _ = line.split("|")
            self.assertEqual(model.strip(), str(self.home / "model"))
            path = path.strip()
            self.assertTrue(path.startswith(f"{self.home}/lib:{self.home}/cuda/lib64:"), path)
            self.assertIn(f":{self.home}/packages/nvidia/cu13/lib:", path)
            self.assertTrue(path.endswith(f":{theirs}"), path)

    def test_libraries_that_are_named_are_used(self):
        # As scripts/gpu names them: NCCL is in a folder of its own, without cuBLASLt.
        (self.home / "nccl").mkdir()
        self.binary("gpu_link_bench", 'echo "| ours | $LD_LIBRARY_PATH |"')
        code, table = self.run_it("--only", "bench-link", "--libraries", self.home / "nccl")
        self.assertEqual(code, 0, table)
        self.assertIn(f"| ours | {self.home}/lib:{self.home}/nccl:", table)

    def test_a_machine_without_cudas_libraries_is_told_so(self):
        self.tool("ldd", f"""case $1 in {self.home}/bin/gpu_link_test) ;; *) exit 1 ;; esac
case $LD_LIBRARY_PATH in {self.home}/lib:*) ;; *) echo '  libours.so => not found' ;; esac
echo '  libcublasLt.so.13 => not found'; echo '  libc.so.6 => /lib/libc.so.6'; echo '  libnccl.so.2 => not found'""")
        code, _, errors = self.start()
        self.assertEqual(code, 1)
        self.assertIn("gpu: no libcublasLt.so.13 libnccl.so.2 here", errors)
        self.assertEqual(self.calls(), {})
        # The CPU backend needs none.
        code, table = self.run_it("--stage", "rehearse")
        self.assertEqual((code, self.calls()), (0, {"relay.py": 1}), table)
        self.assertIn(" --backend cpu ", self.lines[0])

    def test_verdicts_are_of_one_commit(self):
        self.binary("gpu_link_test", "exit 1")
        self.run_it()
        self.calls()
        (self.home / "commit").write_text("def456\n")
        code, table = self.run_it("--only", "test-kernels")
        self.assertEqual((code, self.calls()), (0, {"gpu_kernels_test": 12}), table)
        self.assertIn("# GPU results of commit def456\n", table)
        self.assertEqual(self.verdicts(table), {"test-kernels": "passed"})
        self.assertEqual(list(self.out.glob("test-link*")), [])

    def test_some_parts_only(self):
        code, table = self.run_it("--stage", "fast", "--only", "bench-link,bench-steps", "--quick")
        self.assertEqual((code, self.calls()), (0, {"gpu_bench": 1, "gpu_link_bench": 1}), table)
        self.assertEqual(self.lines,
                         ["gpu_bench --commit=abc123 --only=decode,prefill --quick", "gpu_link_bench --quick"])
        # Parts of earlier calls keep their place in the table.
        code, table = self.run_it("--only", "test-link")
        self.assertEqual((code, self.calls()), (0, {"gpu_link_test": 1}), table)
        self.assertEqual(self.verdicts(table), {"test-link": "passed", "bench-steps": "passed", "bench-link": "passed"})
        self.assertEqual(table.count(FIGURES), 2)
        code, _, errors = self.start("--stage", "right", "--only", "test-link,bench-link", "--again")
        self.assertEqual((code, self.calls()), (1, {}))
        self.assertIn("gpu: stage right has no part bench-link: it has proof-wgmma, test-kernels,", errors)

    def test_an_archive_has_all_but_the_random_model(self):
        file = self.home / "results.tar.gz"
        self.binary("gpu_link_test", "exit 1")
        code, _ = self.run_it("--archive", file)
        self.assertEqual(code, 1)
        self.assertTrue((self.out / "random-8b/model.safetensors").exists())
        with tarfile.open(file, "r:gz") as archive:
            names = archive.getnames()
            table = archive.extractfile("gpu-results/results.md").read()
        self.assertEqual(table, (self.out / "results.md").read_bytes())
        self.assertEqual([name for name in names if "random-8b" in name], [])
        for name in ("test-kernels.0.log", "test-link.log", "random-model.log", "serve-8b.log", "serve-8b.verdict"):
            self.assertIn(f"gpu-results/{name}", names)


if __name__ == "__main__":
    unittest.main()
