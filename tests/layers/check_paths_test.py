"""check-paths passes on the tree, and finds each kind of dead reference planted in a small one."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

TREE = {
    "README.md": "# Title\n\n## Two words, `code` and more\n\nSee [docs](docs/page.md#its-heading) and room/kept.h.\n",
    "docs/page.md": "# Page\n\n## Its heading\n\nBack to [the top](../README.md#two-words-code-and-more), [here](#page).\n",
    "room/kept.h": "// Beside room/inner/deep.cc, room/inner/de_NAME.cc, also inner/deep.cc and deep.cc; not https://x.example/gone.h\n",
    "room/inner/de_ep.cc": "",
    "room/inner/deep.cc": '#include "room/gone.h"\nconst char* kPath = "room/gone.h";  // tests/NAME, room/{kept.h,inner}\n',
    "room/lines.py": '"""Reads room/*.h and kept.h."""\n',
    "tests/one.sh": "#!/bin/sh\n# room/inner/*.cc\n",
    "tests/CMakeLists.txt": "baton_test(one SOURCES built_test.cc)\n",
    "tests/built_test.cc": "",
    "CHANGELOG.md": "# Changes\n\n- room/gone.h is gone.\n",
}

# (file, what is appended to it, what the message must say)
PLANTED = [
    ("README.md", "[page](docs/gone.md)\n", "README.md:6: no page or file docs/gone.md"),
    ("README.md", "[page](docs/page.md#gone)\n", "README.md:6: docs/page.md has no heading for #gone"),
    ("README.md", "[page](#gone)\n", "README.md:6: README.md has no heading for #gone"),
    ("docs/page.md", "[up](page.md/../../gone.md)\n", "no page or file"),
    ("docs/page.md", "Read `room/gone.h`.\n", "docs/page.md:6: the tree has no room/gone.h"),
    ("docs/page.md", "Read (room/inner/gone).\n", "the tree has no room/inner/gone"),
    ("CHANGELOG.md", "[page](docs/gone.md)\n", "no page or file docs/gone.md"),
    ("room/kept.h", "\n// See room/gone.h.\n", "room/kept.h:3: the tree has no room/gone.h"),
    ("room/kept.h", "/* two lines,\n   gone.cc */\n", "room/kept.h:3: the tree has no gone.cc"),
    ("room/kept.h", 'auto x = "//"; // gone.cc\n', "the tree has no gone.cc"),
    ("room/kept.h", "// room/{kept,gone}.h\n", "the tree has no room/gone.h"),
    ("room/kept.h", "// gone_*.h\n", "the tree has no gone_*.h"),
    ("room/kept.h", "// tests/inner/NAME\n", "the tree has no tests/inner/NAME"),
    ("room/lines.py", "x = 1  # gone.py\n", "room/lines.py:2: the tree has no gone.py"),
    ("room/lines.py", '\n\ndef f():\n    """As in\n    gone.py."""\n', "the tree has no gone.py"),
    ("docs/page.md", "Read `GONE.md`.\n", "the tree has no GONE.md"),
    ("tests/one.sh", "# ../gone.cc\n", "tests/one.sh:3: the tree has no ../gone.cc"),
]


def run(root):
    return subprocess.run([sys.executable, ROOT / "scripts" / "check-paths", "--root", root], capture_output=True, text=True,
                          check=False)


class CheckPathsTest(unittest.TestCase):
    def test_the_tree_is_clean(self):
        if subprocess.run(["git", "-C", ROOT, "rev-parse"], capture_output=True, check=False).returncode != 0:
            self.skipTest("not a git checkout")
        result = run(ROOT)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_an_empty_tree_is_not_taken_for_a_clean_one(self):
        with tempfile.TemporaryDirectory() as empty:
            subprocess.run(["git", "-C", empty, "init", "-q"], check=True)
            self.assertEqual(run(empty).returncode, 1)

    def test_a_test_that_is_never_built_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            subprocess.run(["git", "-C", root, "init", "-q"], check=True)
            (root / "CMakeLists.txt").write_text("baton_test(one SOURCES unbuilt_test.cc.in built_test.cc)\n")
            for name in ("built_test.cc", "left_out_test.cc"):
                (root / name).write_text("")
            self.assertEqual(run(root).stdout, "left_out_test.cc:1: no CMakeLists.txt names it, so it is never built\n")

    def test_planted_references_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            subprocess.run(["git", "-C", root, "init", "-q"], check=True)
            for name, text in TREE.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            clean = run(root)
            self.assertEqual((clean.returncode, clean.stdout), (0, ""), clean.stderr)
            for name, line, message in PLANTED:
                with self.subTest(file=name, line=line):
                    (root / name).write_text(TREE[name] + line)
                    result = run(root)
                    (root / name).write_text(TREE[name])
                    self.assertEqual(result.returncode, 1)
                    self.assertIn(message, result.stdout)
                    self.assertEqual(result.stdout.count("\n"), 1, result.stdout)


if __name__ == "__main__":
    unittest.main()
