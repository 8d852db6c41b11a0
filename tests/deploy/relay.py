"""A real relay (`baton serve`) and a real Prometheus beside it, for tests."""
import collections
import json
import os
import pathlib
import queue
import re
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build" / "release" / "bin"))
MODEL = ROOT / "models" / "baton-tiny"
# Generous: the machine may be busy.
PATIENCE = 180


def until(ask, what, seconds=PATIENCE):
    """What ask() says once it is true; AssertionError with what() or what if that takes too long."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.2)  # between two questions, not instead of one
    return answer


def lacking(case, what):
    """Skips the test, because a program is missing. In CI (BATON_CI) all of them are there, and it fails."""
    if os.environ.get("BATON_CI"):
        raise AssertionError(what)
    case.skipTest(what)


class Process:
    """A child whose lines on one stream are read by a thread; what it says on the other is kept for failures. Ends with stop()."""

    def __init__(self, command, stream="stdout"):
        self.log = tempfile.TemporaryFile("w+")
        pipes = {"stdout": self.log, "stderr": self.log, stream: subprocess.PIPE}
        self.popen = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, text=True, **pipes)
        self.lines = queue.Queue()
        self.seen = collections.deque(maxlen=20)
        self.source = getattr(self.popen, stream)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.source:
            self.seen.append(line)
            self.lines.put(line)
        self.lines.put(None)

    def said(self):
        """How it stands, and its last words on both streams."""
        if self.log.closed:
            return self.last
        code = self.popen.poll()
        size = os.fstat(self.log.fileno()).st_size
        rest = os.pread(self.log.fileno(), 4000, max(0, size - 4000)).decode(errors="replace")
        state = "is running" if code is None else f"ended with {code}"
        return f"{' '.join(map(str, self.popen.args))}\n  {state}; it said:\n{''.join(self.seen)}{rest}"

    def wait_for(self, pattern):
        """The first line that matches."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                line = self.lines.get(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line like {pattern} within {PATIENCE} s: {self.said()}") from None
            if line is None:
                self.popen.wait(PATIENCE)
                raise AssertionError(f"no line like {pattern}: {self.said()}")
            if match := re.search(pattern, line):
                return match

    def stop(self):
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            self.popen.wait(60)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        self.reader.join(10)  # a grandchild may hold the pipe open
        if not self.reader.is_alive():
            self.source.close()
        self.last = self.said()
        self.log.close()
        return self.popen.returncode


class Relay:
    def __init__(self, folder, prefill=2, decode=2, more=(), model=MODEL):
        self.observability = pathlib.Path(folder, "observability")
        command = [BIN / "baton", "serve", "--model", model, "--prefill", prefill, "--decode", decode, "--listen", "127.0.0.1:0"]
        command += ["--metrics", "127.0.0.1:0", "--threads", 1, "--kv-memory", "64MiB", "--json", "--observability", self.observability]
        self.process = Process(command + list(more))
        self.announcement = json.loads(self.process.wait_for(r"^\{.*")[0])
        self.router = self.announcement["router"]
        self.http = self.announcement.get("http")

    def pid(self, name):
        return next(p["pid"] for p in self.announcement["processes"] if p["name"] == name)

    def stop(self):
        return self.process.stop()


class Prometheus:
    def __init__(self, config, data, interval="1s"):
        text = pathlib.Path(config).read_text()
        # Faster than on a real machine, so that the test need not wait.
        text = re.sub(r"(scrape_interval|evaluation_interval|refresh_interval): \w+", rf"\1: {interval}", text)
        pathlib.Path(config).write_text(text)
        subprocess.run(["promtool", "check", "config", config], check=True, stdout=subprocess.DEVNULL)
        self.process = Process(["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}", "--web.listen-address=127.0.0.1:0"], stream="stderr")
        self.address = self.process.wait_for(r'msg="Listening on" address=(\S+)')[1]
        self.process.wait_for("Server is ready")

    def get(self, path, **parameters):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]

    def query(self, expression):
        """[(labels, value)]. Raises with Prometheus' words if it does not understand."""
        try:
            data = self.get("query", query=expression)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(one["metric"], float(one["value"][1])) for one in data["result"]]

    def stop(self):
        return self.process.stop()
