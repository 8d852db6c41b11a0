#!/usr/bin/env python3
"""scripts/gpu, with stand-ins for its binaries: one that fails or hangs costs no other, results are written as they come,
a second call goes on where the first one was cut off, and the time is bounded."""
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOOD = 'echo "| what | measured | limit | ratio |"; echo "| it | 1 | 2 | 50% |"; echo noise'


class Script(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="baton-gpu-"))
        self.addCleanup(shutil.rmtree, self.home)
        # A machine of our own making: no GPU, no PyTorch, whatever this one has.
        self.tools = self.home / "tools"
        self.tools.mkdir()
        self.tool("python3", "exit 1")
        self.tool("nvidia-smi", "echo 'GPU 0: a stand-in'")
        (self.home / "bin").mkdir()
        (self.home / "lib").mkdir()
        (self.home / "packed").write_text("abc123")
        (self.home / "torch_peer.py").write_text("print('| torch | 1 |')")
        shutil.copy(ROOT / "scripts" / "gpu", self.home / "run")
        for name in ("gpu_kernels_test", "gpu_model_test", "gpu_link_test", "gpu_bench", "gpu_link_bench"):
            self.binary(name, GOOD)

    def write(self, path, body):
        path.write_text(f"#!/usr/bin/env bash\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def tool(self, name, body):
        self.write(self.tools / name, body)

    def binary(self, name, body):
        self.write(self.home / "bin" / name, f'echo "{name} $*" >>{self.home}/calls\n{body}')

    def start(self, *flags):
        environment = dict(os.environ, PATH=f"{self.tools}:{os.environ['PATH']}")
        return subprocess.run([self.home / "run", "--out", self.home / "out.md", *flags], capture_output=True, text=True,
                              timeout=100, env=environment)

    def run_it(self, *flags):
        done = self.start(*flags)
        return done.returncode, (self.home / "out.md").read_text()

    def calls(self):
        calls = (self.home / "calls").read_text().splitlines()
        (self.home / "calls").unlink()
        return calls

    def test_all_is_well(self):
        code, table = self.run_it()
        self.assertEqual(code, 0, table)
        self.assertIn("commit abc123", table)
        self.assertEqual(table.count("passed"), 9)
        self.assertIn("| peer-torch | not measured: no PyTorch with CUDA here |", table)
        self.assertEqual(table.count("| it | 1 | 2 | 50% |"), 6)
        self.assertNotIn("noise", table)

    def test_without_a_sanitizer_its_parts_are_not_run_and_nothing_failed(self):
        code, table = self.run_it("--sanitize")
        self.assertEqual(code, 0, table)
        self.assertIn("| sanitize-memcheck | not run: no compute-sanitizer here |", table)
        self.tool("compute-sanitizer", "echo checked")
        code, table = self.run_it("--sanitize")
        self.assertEqual(code, 0, table)
        self.assertIn("| sanitize-racecheck | passed |", table)

    def test_a_part_that_fails_costs_no_other_and_is_run_again(self):
        self.binary("gpu_kernels_test", "echo 'Failure: wrong'; exit 3")
        self.binary("gpu_model_test", "kill -SEGV $$")
        code, table = self.run_it()
        self.assertEqual(code, 1)
        self.assertIn("| test-kernels | FAILED (3) |", table)
        self.assertIn("| test-model | FAILED (139) |", table)
        self.assertIn("| bench-link | passed |", table)
        self.calls()
        self.binary("gpu_kernels_test", "true")
        self.binary("gpu_model_test", "true")
        code, table = self.run_it()
        self.assertEqual(code, 0, table)
        self.assertEqual([call.split()[0] for call in self.calls()], ["gpu_kernels_test", "gpu_model_test"])
        self.run_it("--again")
        self.assertEqual(len(self.calls()), 9)

    def test_time_is_bounded_and_what_did_not_fit_is_named(self):
        self.binary("gpu_kernels_test", "sleep 60")
        begin = time.monotonic()
        code, table = self.run_it("--budget", "16")
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(code, 1)
        self.assertIn("| test-kernels | NO END within 16 s |", table.replace("within 15 s", "within 16 s"))
        self.assertIn("| bench-decode | not run: the 16 s are over |", table)
        self.assertIn("| bench-link | not run: the 16 s are over |", table)

    def test_pytorch_is_measured_with_its_own_libraries(self):
        self.tool("python3", 'case $1 in -c) exit 0 ;; *) echo "| torch | ${LD_LIBRARY_PATH-none} |" ;; esac')
        for name in ("gpu_kernels_test", "gpu_bench"):
            self.binary(name, 'echo "| ours | $LD_LIBRARY_PATH |"')
        code, table = self.run_it()
        self.assertEqual(code, 0, table)
        self.assertIn(f"| ours | {self.home}/lib:", table)
        self.assertNotIn(f"| torch | {self.home}", table)
        self.assertIn("| peer-torch | passed |", table)

    def test_a_machine_without_cudas_libraries_is_told_so(self):
        self.tool("ldd", "echo '  libcublasLt.so.13 => not found'; echo '  libnccl.so.2 => not found'")
        done = self.start()
        self.assertEqual(done.returncode, 1)
        self.assertIn("no libcublasLt.so.13 libnccl.so.2 here", done.stderr)
        self.assertFalse((self.home / "calls").exists())

    def test_verdicts_are_of_one_commit(self):
        self.run_it()
        self.calls()
        (self.home / "packed").write_text("def456")
        _, table = self.run_it()
        self.assertIn("commit def456", table)
        self.assertEqual(len(self.calls()), 9)


if __name__ == "__main__":
    unittest.main()
