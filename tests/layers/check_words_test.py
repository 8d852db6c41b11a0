"""check-words passes on the tree, and says what is wrong with comments and pages planted in a copy of its own."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
loader = importlib.machinery.SourceFileLoader("check_words", str(ROOT / "scripts" / "check-words"))
words = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_words", loader))
sys.dont_write_bytecode = True
loader.exec_module(words)


class CheckWords(unittest.TestCase):
    def test_the_tree(self):
        self.assertEqual(words.check(ROOT), [])

    def test_how_a_comment_begins(self):
        self.assertEqual(list(words.elliptic("// Of the tenants.\nint a;\n  // The tenants.\n// Of them all.\n\n/// What it is\nint b;  // Of it\n")), [1, 6])
        self.assertEqual(list(words.elliptic("#pragma once\n// Who asks.\n\n# Names.\n# Of them all.\n")), [2])
        self.assertEqual(list(words.elliptic("// Offers stand here.\n// Whoever asks.\n\n// Whether it is there.\n")), [4])

    def test_how_long_a_line_is(self):
        long = "x " + "x" * 119
        self.assertEqual(list(words.too_long(f"{long}\n| {long}\n    {long}\n```\n{long}\n```\n{long[1:]}\n{'x' * 121}\n{long}\n")), [1, 9])

    def test_where_a_comment_or_a_line_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            subprocess.run(["git", "init", "-q", root], check=True)
            (root / "a.h").write_text("// The tenants.\n")
            self.assertEqual(words.check(root), [])
            (root / "b.h").write_text("int a;\n// Who asks.\n")
            (root / "page.md").write_text("y " * 61)
            self.assertEqual([violation.split(": ")[0] for violation in words.check(root)], ["b.h:2", "page.md:1"])


if __name__ == "__main__":
    unittest.main()
