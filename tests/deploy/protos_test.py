#!/usr/bin/env python3
"""scripts/check-protos, on copies of the protos with a fault in each; and the stubs that buf generates."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from relay import ROOT, lacking

TOOLS = ROOT / "build" / "tools"
BIN = TOOLS / "node" / "node_modules" / ".bin"


class Protos(unittest.TestCase):
    def setUp(self):
        if not (BIN / "buf").exists():
            lacking(self, "no buf here: scripts/setup --ci and deploy/tools/install bring it")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "proto", self.root / "proto")
        (self.root / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "check-protos", self.root / "scripts")
        (self.root / "build").mkdir()
        (self.root / "build" / "tools").symlink_to(TOOLS.resolve())

    def check(self, *arguments):
        done = subprocess.run([self.root / "scripts" / "check-protos", *arguments], capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout + done.stderr

    def change(self, file, before, after):
        path = self.root / "proto" / "baton" / file
        text = path.read_text()
        self.assertEqual(text.count(before), 1, before)
        path.write_text(text.replace(before, after))

    def test_the_tree_is_clean(self):
        self.assertEqual(self.check(), (0, ""))

    def test_breaks_are_found(self):
        for file, before, after, says in (
            ("v1/generation.proto", "  optional int32 top_k = 2;\n", "  reserved 2;\n", 'field "2" with name "top_k"'),
            ("v1/generation.proto", "optional int32 top_k = 2;", "optional int32 best_k = 2;", "top_k"),
            ("v1/inference.proto", "uint32 prompt_tokens = 1;", "uint64 prompt_tokens = 1;", "prompt_tokens"),
            ("v1/inference.proto", "rpc Moderate(", "rpc Judge(", "Moderate"),
            ("fleet/v1/worker.proto", "fixed64 incarnation = 3;", "string incarnation = 3;", "incarnation"),
            ("v1/inference.proto", "  // Number of token ids.\n", "", "vocabulary_tokens"),
        ):
            with self.subTest(after=after or before):
                shutil.copytree(ROOT / "proto", self.root / "proto", dirs_exist_ok=True)
                self.change(file, before, after)
                code, said = self.check()
                self.assertNotEqual(code, 0, said)
                self.assertIn(says, said)

    def test_a_name_between_workers_may_change_and_what_landed_is_compared_with(self):
        self.change("fleet/v1/worker.proto", "fixed64 incarnation = 3;", "fixed64 life = 3;")
        self.change("v1/inference.proto", "// Number of token ids.\n  uint32 vocabulary_tokens = 3;", "// Number of token ids.\n  uint32 vocabulary_tokens = 3;\n  // More.\n  uint32 more = 99;")
        self.assertEqual(self.check("--landed"), (0, ""))
        self.change("v1/inference.proto", "  // More.\n  uint32 more = 99;\n", "")
        code, said = self.check()
        self.assertNotEqual(code, 0)
        self.assertIn("more", said)

    def test_buf_generates_the_stubs(self):
        path = f"{TOOLS / 'bin'}:{BIN}:{os.environ['PATH']}"
        done = subprocess.run([BIN / "buf", "generate"], cwd=self.root / "proto", env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        stubs = self.root / "build" / "stubs"
        self.assertIn("func NewInferenceClient(", (stubs / "go/baton/v1/inference_grpc.pb.go").read_text())
        self.assertIn("export declare const Inference:", (stubs / "baton/v1/inference_pb.d.ts").read_text())
        self.assertFalse((stubs / "go/baton/fleet").exists())


if __name__ == "__main__":
    unittest.main()
