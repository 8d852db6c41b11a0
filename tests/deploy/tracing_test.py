#!/usr/bin/env python3
"""OpenTelemetry's own collector reads the spans of a real relay: one request is one trace. Some seconds."""
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

from relay import BIN, Relay, until

# A collector that writes out what it reads.
CONFIG = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
exporters: {{debug: {{verbosity: detailed}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [debug]}}}}
"""
NAMES = {
    "router.request", "router.admit", "router.place", "first_token", "decode.request", "decode.queue", "decode",
    "prefill", "prefill.queue", "prefill.compute",
}


class Collector:
    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = pathlib.Path(folder, "collector.yaml")
        config.write_text(CONFIG.format(port=self.port))
        self.log = pathlib.Path(folder, "collector.log")
        # Everything goes to standard error, of which Process would keep the last lines alone.
        with self.log.open("w") as log:
            self.popen = subprocess.Popen(["otelcol", f"--config=file:{config}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        until(lambda: "Everything is ready" in self.log.read_text(), lambda: self.log.read_text())

    def spans(self):
        """[{"Trace ID": ..., "Name": ..., ...}], with the resource's service as "service"."""
        spans, service = [], None
        for line in self.log.read_text().splitlines():
            if match := re.search(r"-> service\.name: Str\((.*)\)", line):
                service = match[1]
            elif re.match(r"Span #\d+", line):
                spans.append({"service": service})
            elif spans and (match := re.match(r"    (Trace ID|Parent ID|ID|Name|Kind|Start time|End time|TraceState|Status code) *: ?(.*)", line)):
                spans[-1][match[1]] = match[2].strip()
        return spans

    def stop(self):
        self.popen.terminate()
        self.popen.wait(60)


class Tracing(unittest.TestCase):
    def test_a_request_is_one_trace(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        collector = Collector(folder.name)
        self.addCleanup(collector.stop)
        relay = Relay(folder.name, prefill=1, decode=1, more=["--otlp", f"http://127.0.0.1:{collector.port}"])
        try:
            done = subprocess.run([BIN / "baton", "generate", "--server", relay.router, "--prompt", "Once upon a time " * 30, "-m", "8"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        finally:
            relay.stop()
        spans = collector.spans()
        said = collector.log.read_text()[-6000:]
        self.assertEqual(len({span["Trace ID"] for span in spans}), 1, said)
        self.assertLessEqual(NAMES, {span["Name"] for span in spans}, said)
        self.assertLessEqual({"baton-router", "baton-decode"}, {span["service"] for span in spans}, said)
        ids = {span["ID"] for span in spans}
        (root,) = [span for span in spans if not span["Parent ID"]]
        self.assertEqual(root["Name"], "router.request")
        self.assertTrue(all(span["Parent ID"] in ids for span in spans if span is not root), said)
        self.assertEqual({span["Kind"] for span in spans if span["Name"] in ("router.request", "decode.request")}, {"Server"}, said)


if __name__ == "__main__":
    unittest.main()
