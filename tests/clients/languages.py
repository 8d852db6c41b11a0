"""How the clients are built: each in a copy of the repository's folders, with the probe that tests run beside it."""
import atexit
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
TOOLS = ROOT / "build" / "tools"
PYTHON = os.path.abspath(sys.executable)  # it may have been found by a relative path
LANGUAGES = ("python", "go", "typescript", "rust", "java")
_folder = tempfile.TemporaryDirectory()
atexit.register(_folder.cleanup)
COPY = pathlib.Path(_folder.name)
ENVIRONMENT = {**os.environ, "PATH": f"{TOOLS / 'bin'}:{os.environ['PATH']}"}


class Lacking(Exception):
    """A program that is not here."""


def run(*command, cwd=COPY):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=3600, env=ENVIRONMENT)
    if done.returncode:
        raise AssertionError(f"{command}\n{done.stdout}{done.stderr}")
    return done.stdout


def need(*programs):
    for program in programs:
        if shutil.which(program, path=ENVIRONMENT["PATH"]) is None:
            raise Lacking(f"no {program} here")


def make_python_stubs():
    """Of the whole public API, with the package beside them, into a folder that is then on Python's path."""
    site = COPY / "site"
    if not site.exists():
        shutil.copytree(ROOT / "clients/python/baton_client", site / "baton_client")
        protos = [path.relative_to(ROOT / "proto") for path in sorted((ROOT / "proto/baton/v1").glob("*.proto"))]
        run(PYTHON, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--python_out={site}", f"--grpc_python_out={site}", *protos)
        sys.path.insert(0, str(site))
    return site


def copied(language, *probe):
    """The client's folder in the copy, with the test's programs under `probe`."""
    folder = COPY / "clients" / language
    if not (COPY / "proto").exists():
        shutil.copytree(ROOT / "proto", COPY / "proto")
    shutil.copytree(ROOT / "clients" / language, folder, ignore=shutil.ignore_patterns("node_modules", "target", "dist"))
    shutil.copytree(HERE / language, folder.joinpath(*probe), dirs_exist_ok=True)
    return folder


def build_python():
    site = make_python_stubs()
    return ["env", f"PYTHONPATH={site}", PYTHON, HERE / "python/probe.py"]


def build_go():
    need("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")
    folder = copied("go", "probe")
    run("go", "generate", cwd=folder)
    run("go", "vet", "./...", cwd=folder)
    run("go", "build", "-mod=readonly", "-o", "bin/", "./...", cwd=folder)
    return [folder / "bin/probe"]


def build_typescript():
    need("node", "npm", "protoc")
    folder = copied("typescript", "src", "probe")
    run("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
    run("npm", "run", "build", cwd=folder)
    return ["node", folder / "dist/probe/probe.js"]


def build_rust():
    need("cargo", "protoc")
    folder = copied("rust", "examples")
    run("cargo", "build", "--all-features", "--examples", cwd=folder)
    return [pathlib.Path(os.environ.get("CARGO_TARGET_DIR", folder / "target")) / "debug/examples/probe"]


def build_java():
    need("java", "javac", "mvn")
    folder = copied("java", "src/test/java")
    run("mvn", "-q", "-B", "test-compile", "dependency:build-classpath", "-Dmdep.includeScope=test", "-Dmdep.outputFile=target/classpath", cwd=folder)
    jars = (folder / "target/classpath").read_text().strip()
    return ["java", "-cp", f"{folder / 'target/classes'}:{folder / 'target/test-classes'}:{jars}", "Probe"]


@functools.cache
def _built(language):
    try:
        return globals()[f"build_{language}"](), None
    except Lacking as lack:
        return None, str(lack)


def build(language):
    """The command of the probe. Lacking, if a program for it is not here."""
    command, lack = _built(language)
    if lack:
        raise Lacking(lack)
    return command


def ask(command, **asked):
    """What the probe says."""
    done = subprocess.run([*map(str, command), json.dumps(asked)], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise AssertionError(f"{asked}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)
