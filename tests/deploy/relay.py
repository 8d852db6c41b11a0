"""A real relay (`baton serve`) and a real Prometheus beside it, for tests."""
import json
import os
import pathlib
import queue
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BATON_BIN", ROOT / "build" / "release" / "bin"))
MODEL = ROOT / "models" / "baton-tiny"
# Generous: the machine may be busy.
PATIENCE = 180


class Process:
    """A child whose lines are read by a thread; ends with stop()."""

    def __init__(self, command, stream="stdout", log=None):
        self.log = open(log, "w") if log else subprocess.DEVNULL
        pipes = {"stdout": self.log, "stderr": self.log, stream: subprocess.PIPE}
        self.popen = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, text=True, **pipes)
        self.lines = queue.Queue()
        self.source = getattr(self.popen, stream)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.source:
            self.lines.put(line)
        self.lines.put(None)

    def wait_for(self, pattern):
        """The first line that matches."""
        seen = []
        deadline = time.monotonic() + PATIENCE
        while True:
            line = self.lines.get(timeout=max(0.1, deadline - time.monotonic()))
            if line is None:
                raise AssertionError(f"{self.popen.args[0]} ended: {''.join(seen[-20:])}")
            seen.append(line)
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
        self.source.close()
        if self.log is not subprocess.DEVNULL:
            self.log.close()
        return self.popen.returncode


class Relay:
    def __init__(self, folder, prefill=2, decode=2, more=()):
        self.observability = pathlib.Path(folder, "observability")
        command = [BIN / "baton", "serve", "--model", MODEL, "--prefill", prefill, "--decode", decode, "--listen", "127.0.0.1:0"]
        command += ["--metrics", "127.0.0.1:0", "--threads", 1, "--kv-memory", "64MiB", "--json", "--observability", self.observability]
        self.process = Process(command + list(more), log=str(pathlib.Path(folder, "serve.log")))
        self.announcement = json.loads(self.process.wait_for(r"^\{.*")[0])
        self.router = self.announcement["router"]

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
