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
    """Makes the stubs of the public API, beside the package, in a folder that is then on Python's path."""
    site = COPY / "site"
    if not site.exists():
        shutil.copytree(ROOT / "clients/python/baton_client", site / "baton_client")
        protos = [path.relative_to(ROOT / "proto") for path in sorted((ROOT / "proto/baton/v1").glob("*.proto"))]
        run(PYTHON, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--python_out={site}", f"--grpc_python_out={site}", *protos)
        sys.path.insert(0, str(site))
    return site


def copied(language, **programs):
    """The client's folder in the copy, with the test's programs: source=where it goes."""
    folder = COPY / "clients" / language
    if not (COPY / "proto").exists():
        shutil.copytree(ROOT / "proto", COPY / "proto")
    shutil.copytree(ROOT / "clients" / language, folder, ignore=shutil.ignore_patterns("node_modules", "target", "dist"))
    for source in (HERE / language).iterdir():
        target = folder / programs[source.stem.lower()] / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    return folder


def build_python():
    site = make_python_stubs()
    return {name: ["env", f"PYTHONPATH={site}", PYTHON, HERE / f"python/{name}.py"] for name in ("probe", "plain")}


def build_go():
    need("go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")
    folder = copied("go", probe="probe", plain="plain")
    run("go", "generate", cwd=folder)
    run("go", "vet", "./...", cwd=folder)
    run("go", "build", "-mod=readonly", "-o", "bin/", "./...", cwd=folder)
    return {name: [folder / "bin" / name] for name in ("probe", "plain", "example")}


def build_typescript():
    need("node", "npm", "protoc")
    folder = copied("typescript", probe="src/test", plain="src/test")
    run("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder)
    run("npm", "run", "build", cwd=folder)
    return {name: ["node", folder / f"dist/{path}.js"] for name, path in {"probe": "test/probe", "plain": "test/plain", "example": "example"}.items()}


def build_rust():
    need("cargo", "protoc")
    folder = copied("rust", probe="examples", plain="examples")
    run("cargo", "build", "--all-features", "--examples", cwd=folder)
    made = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", folder / "target")) / "debug/examples"
    return {"probe": [made / "probe"], "plain": [made / "plain"], "example": [made / "chat"]}


def build_java():
    need("java", "javac", "mvn")
    folder = copied("java", probe="src/test/java", plain="src/test/java")
    run("mvn", "-q", "-B", "test-compile", "dependency:build-classpath", "-Dmdep.includeScope=test", "-Dmdep.outputFile=target/classpath", cwd=folder)
    jars = (folder / "target/classpath").read_text().strip()
    java = ["java", "-cp", f"{folder / 'target/classes'}:{folder / 'target/test-classes'}:{jars}"]
    return {"probe": [*java, "Probe"], "plain": [*java, "Plain"], "example": [*java, "example.baton.client.Example"]}


@functools.cache
def _built(language):
    try:
        return globals()[f"build_{language}"](), None
    except Lacking as lack:
        return None, str(lack)


def build(language):
    """The commands of its programs, by name. Lacking, if something for it is not here."""
    commands, lack = _built(language)
    if lack:
        raise Lacking(lack)
    return commands


def package(*requirements):
    """Packages from PyPI, in a folder of their own on Python's path."""
    folder = COPY / "packages" / requirements[0].split("=")[0]
    if not folder.exists():
        run(PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target", folder, *requirements)
        sys.path.append(str(folder))


def ask(command, **asked):
    """Runs the probe, and gives its answer."""
    done = subprocess.run([*map(str, command), json.dumps(asked)], capture_output=True, text=True, timeout=600, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise AssertionError(f"{asked}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)
