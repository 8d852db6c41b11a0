"""Every answer that a schema's grammar lets a random walk write validates, as the `jsonschema` package says.

    walks_test.py golden_test ROOT      exit 77: there is no such package
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile


def package(root):
    for folder in [None, *sorted(root.glob("build/tools/venv/lib/python*/site-packages"))]:
        if folder is not None:
            sys.path.append(str(folder))
        try:
            import jsonschema
            return jsonschema
        except ImportError:
            continue
    return None


def main():
    binary, root = sys.argv[1], pathlib.Path(sys.argv[2])
    jsonschema = package(root)
    if jsonschema is None:
        print("there is no jsonschema package: skipped")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "walks"
        subprocess.run([binary, "--gtest_brief=1", "--gtest_filter=SchemasTest.RandomWalksAreJson"], cwd=root,
                       env={**os.environ, "BATON_WALKS": str(path)}, check=True)
        walks = [line.split("\t", 1) for line in path.read_text(encoding="utf-8").splitlines()]
    schemas = json.loads((pathlib.Path(__file__).parent / "schemas.json").read_text())
    dialect = jsonschema.Draft202012Validator
    wrong = 0
    for index, quoted in walks:
        text = json.loads(quoted)
        case = schemas[int(index)]
        errors = [error.message for error in dialect(case["schema"]).iter_errors(json.loads(text))]
        if errors:
            wrong += 1
            print(f"{case['name']}: {text}: {errors[0]}")
    print(f"{len(walks)} answers, {wrong} of them invalid")
    return 0 if walks and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
