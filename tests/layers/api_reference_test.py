"""docs/api.md is what the protos say, and api-reference notices when it is not."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "api-reference"


def run(*arguments):
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, check=False)


class ApiReferenceTest(unittest.TestCase):
    def test_the_page_is_up_to_date(self):
        result = run("--check")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_changes_are_noticed(self):
        changes = [
            ("// Keep the k highest logits", "// Keep the best", "out of date"),
            ("optional int32 top_k = 2;", "optional int32 top_k = 2;\n  int32 more = 10;", "out of date"),
            ("// When a generation ends.\n", "", "StopConditions has no comment"),
            ("// Why a choice ended.\n", "message Bare {}\n// Why a choice ended.\n", "Bare has no comment"),
        ]
        for before, after, says in changes:
            with self.subTest(change=after), tempfile.TemporaryDirectory() as folder:
                proto = pathlib.Path(folder) / "proto"
                shutil.copytree(ROOT / "proto", proto)
                file = proto / "baton/v1/generation.proto"
                text = file.read_text()
                self.assertIn(before, text)
                file.write_text(text.replace(before, after, 1))
                result = run("--check", "--proto", proto)
                self.assertEqual(result.returncode, 1)
                self.assertIn(says, result.stderr)

    def test_a_file_that_the_page_leaves_out_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            proto = pathlib.Path(folder) / "proto"
            shutil.copytree(ROOT / "proto", proto)
            (proto / "baton/v1/more.proto").write_text('syntax = "proto3";\npackage baton.v1;\n')
            self.assertEqual(run("--check", "--proto", proto).returncode, 1)

    def test_what_it_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            page = pathlib.Path(folder) / "api.md"
            self.assertEqual(run("--out", page).returncode, 0)
            written = page.read_text()
        self.assertIn("### Service Inference\n", written)
        self.assertIn("| `top_k` = 2 | optional `int32` | Keep the k highest logits; 0 keeps all. Default 0. |\n", written)
        self.assertIn("| `logit_bias` = 9 | map of `int32` to `float` |", written)
        self.assertIn("| `tool_calls` = 4 | repeated [ToolCall](#toolcall) |", written)
        self.assertIn("### ToolChoice.Mode\n", written)


if __name__ == "__main__":
    unittest.main()
