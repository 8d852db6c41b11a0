#!/usr/bin/env python3
"""The examples in C++, Go, Python and TypeScript against a real service: each streams, runs a loop of tools, asks for an answer under a schema, and finds
a marked document in the cache; and one whose worker is killed while it writes. Stubs are made by the README's lines, in a folder of the test's."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

from relay import BIN, ROOT, Relay, lacking

TOOLS = ROOT / "build" / "tools"
NODE = TOOLS / "node" / "node_modules"
ANSWERS = r"Hello, Ada!.*\nget_weather\(.*Oslo.*\)\nThe weather in Oslo is sunny\..*\n"
ADDRESS = "127.0.0.1:8470"
HTTP = "127.0.0.1:8000"


def run(*command, cwd=ROOT, env=None):
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=300, env=env)
    if done.returncode:
        raise AssertionError(f"{command}\n{done.stdout}{done.stderr}")
    return done.stdout


def make_stubs(flag, folder):
    """Runs the README's line with this flag of protoc."""
    lines = [line.strip() for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("    protoc ") and flag in line]
    if len(lines) != 1:
        raise AssertionError(f"the README has {len(lines)} lines with {flag}")
    os.makedirs(f"{folder}/go")
    line = lines[0].replace(" --grpc-java_out=build/stubs", "").replace("build/stubs", folder)
    run("bash", "-c", line, env={**os.environ, "PATH": f"{TOOLS / 'bin'}:{NODE / '.bin'}:{os.environ['PATH']}"})


def build_go(name, folder):
    """With the versions of deploy/tools/clients, and the stubs, if there are any, as a module of their own."""
    go = TOOLS / "bin" / "go"
    for source in (ROOT / "examples" / name, ROOT / "deploy/tools/clients/go.mod", ROOT / "deploy/tools/clients/go.sum"):
        shutil.copy(source, folder)
    stubs = pathlib.Path(folder, "go")
    if stubs.is_dir():
        run(go, "mod", "init", "baton.example/go", cwd=stubs)
        run(go, "mod", "edit", "-require=baton.example/go@v0.0.0", "-replace=baton.example/go=./go", cwd=folder)
    run(go, "build", "-mod=mod", "-o", "client", name, cwd=folder)
    return f"{folder}/client"


def check(case, said):
    """What clients print. The second question finds the document, which the first one, or a client before this one, has left."""
    case.assertRegex(said, ANSWERS)
    found = [int(count) for count in re.findall(r"(\d+)(?: tokens)? found", said)]
    case.assertEqual(len(found), 2, said)
    case.assertGreaterEqual(found[1], 320, said)


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.relay = Relay(folder.name, prefill=1, decode=1, more=["--http", "127.0.0.1:0"])
        cls.addClassCleanup(cls.relay.stop)
        cls.http = f"http://{cls.relay.http}/v1"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_cpp(self):
        """As CMake has built it."""
        said = run(BIN.parent / "examples/example_chat", self.relay.router)
        check(self, said)
        self.assertRegex(said, r'\{\s*"floor"')

    def test_cpp_http(self):
        self.assertRegex(run(BIN.parent / "examples/example_chat_http", self.relay.http), r"Hello, Ada!.*\n$")

    def python(self, name, address, where):
        """The example, with the address where this service listens, in the test's folder beside the stubs."""
        text = (ROOT / "examples" / name).read_text()
        self.assertEqual(text.count(address), 1)
        path = pathlib.Path(self.folder, name)
        path.write_text(text.replace(address, where))
        return path

    def make_python_stubs(self):
        protos = [path.relative_to(ROOT) for path in sorted((ROOT / "proto/baton/v1").glob("*.proto"))]
        run(sys.executable, "-m", "grpc_tools.protoc", "-I", "proto", f"--python_out={self.folder}", f"--grpc_python_out={self.folder}", *protos)

    def test_python_http(self):
        check(self, run(sys.executable, self.python("chat_http.py", HTTP, self.relay.http)))

    def test_an_answer_survives_its_worker(self):
        """The worker that writes is killed after the first words."""
        self.make_python_stubs()
        with tempfile.TemporaryDirectory() as folder:
            relay = Relay(folder, prefill=1, decode=2)
            self.addCleanup(relay.stop)
            script = self.python("steady.py", ADDRESS, relay.router)
            whole, end, _ = run(sys.executable, script).rsplit("\n", 2)
            self.assertRegex(end, r"^1200 tokens; moved 0 times; ended on ")
            example = subprocess.Popen([sys.executable, "-u", script], stdout=subprocess.PIPE, text=True)
            first = example.stdout.read(40)
            (writer,) = [worker for worker in relay.announcement["processes"] if worker["name"].startswith("decode") and self.writes(worker)]
            os.kill(writer["pid"], signal.SIGKILL)
            # Not communicate(): it reads past what read(40) has buffered, and loses that.
            patience = threading.Timer(180, example.kill)
            patience.start()
            text, end, _ = (first + example.stdout.read()).rsplit("\n", 2)
            patience.cancel()
            self.assertEqual(example.wait(timeout=60), 0)
            example.stdout.close()
            self.assertEqual(text, whole, "a word is missing, or there twice")
            self.assertRegex(end, r"^1200 tokens; moved 1 times; ended on ")
            self.assertNotEqual(end.split()[-1], writer["name"])

    @staticmethod
    def writes(worker):
        with urllib.request.urlopen(f"http://{worker['metrics']}/metrics", timeout=60) as page:
            return re.search(r'^baton_decode_sequences{state="running"} [1-9]', page.read().decode(), re.MULTILINE) is not None

    def test_python(self):
        self.make_python_stubs()
        said = {name: run(sys.executable, self.python(name, ADDRESS, self.relay.router)) for name in ("tools.py", "document.py")}
        self.assertRegex(said["tools.py"], r'get_weather\(\{"city": "Oslo"\}\) -> sunny in Oslo\n.*Oslo is sunny')
        # Its handbook begins otherwise than the other clients', so that the first question writes it, and the second finds all of that.
        (wrote, found), (again, finds) = re.findall(r"floor \d: (\d+) tokens written, (\d+) found\n", said["document.py"])
        self.assertGreater(int(wrote), 320)
        self.assertEqual((found, again, finds), ("0", "0", wrote))

    def test_go(self):
        if not (TOOLS / "bin" / "go").exists():
            lacking(self, "no Go here: deploy/tools/install brings it")
        make_stubs("--go_out", self.folder)
        check(self, run(build_go("client.go", self.folder), self.relay.router))

    def test_typescript(self):
        if shutil.which("node") is None or not NODE.is_dir():
            lacking(self, "no Node.js here: scripts/setup --ci and deploy/tools/install bring it")
        make_stubs("--es_out", self.folder)
        for name in ("client.ts", "client_http.ts"):
            shutil.copy(ROOT / "examples" / name, self.folder)
        with open(f"{self.folder}/package.json", "w") as file:
            file.write('{"type": "module"}')
        run("ln", "-s", NODE, f"{self.folder}/node_modules")
        # The compiler checks types, and what it writes runs on any Node.js.
        flags = ["--strict", "--noUncheckedIndexedAccess", "--target", "es2022", "--module", "nodenext", "--types", "node", "--skipLibCheck"]
        run(NODE / ".bin" / "tsc", *flags, "client.ts", "client_http.ts", cwd=self.folder)
        check(self, run("node", "client.js", self.relay.router, cwd=self.folder))
        check(self, run("node", "client_http.js", self.http, cwd=self.folder))

    def test_java_stubs(self):
        """Their messages; what makes the services of Java is not installed here."""
        make_stubs("--java_out", self.folder)
        self.assertIn("class ChatRequest", run("cat", f"{self.folder}/example/baton/v1/ChatRequest.java"))


if __name__ == "__main__":
    unittest.main()
