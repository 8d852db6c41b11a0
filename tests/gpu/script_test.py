#!/usr/bin/env python3
"""scripts/gpu, with stand-ins for its binaries: one that fails or hangs costs no other, results are written as they come,
a second call goes on where the first one was cut off, and the time is bounded."""
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
        (self.home / "bin").mkdir()
        (self.home / "lib").mkdir()
        (self.home / "packed").write_text("abc123")
        (self.home / "torch_peer.py").write_text("print('| torch | 1 |')")
        shutil.copy(ROOT / "scripts" / "gpu", self.home / "run")
        for name in ("gpu_kernels_test", "gpu_model_test", "gpu_link_test", "gpu_bench", "gpu_link_bench"):
            self.binary(name, GOOD)

    def binary(self, name, body):
        path = self.home / "bin" / name
        path.write_text(f'#!/usr/bin/env bash\necho "{name} $*" >>{self.home}/calls\n{body}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_it(self, *flags):
        done = subprocess.run([self.home / "run", "--out", self.home / "out.md", *flags], capture_output=True, text=True,
                              timeout=100)
        return done.returncode, (self.home / "out.md").read_text()

    def calls(self):
        calls = (self.home / "calls").read_text().splitlines()
        (self.home / "calls").unlink()
        return calls

    def test_all_is_well(self):
        code, table = self.run_it()
        self.assertEqual(code, 0, table)
        self.assertIn("commit abc123", table)
        self.assertEqual(table.count("passed"), 8)
        self.assertEqual(table.count("| it | 1 | 2 | 50% |"), 4)
        self.assertNotIn("noise", table)

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
        self.assertEqual(len(self.calls()), 7)

    def test_time_is_bounded_and_what_did_not_fit_is_named(self):
        self.binary("gpu_kernels_test", "sleep 60")
        begin = time.monotonic()
        code, table = self.run_it("--budget", "16")
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(code, 1)
        self.assertIn("| test-kernels | NO END within 16 s |", table.replace("within 15 s", "within 16 s"))
        self.assertIn("| bench-decode | not run: the 16 s are over |", table)
        self.assertIn("| bench-link | not run: the 16 s are over |", table)

    def test_verdicts_are_of_one_commit(self):
        self.run_it()
        self.calls()
        (self.home / "packed").write_text("def456")
        _, table = self.run_it()
        self.assertIn("commit def456", table)
        self.assertEqual(len(self.calls()), 7)


if __name__ == "__main__":
    unittest.main()
