#!/usr/bin/env python3
"""The load of a real service under vLLM's names (--vllm-metrics), as a real Prometheus reads it from the router's page: what an endpoint picker of the
Gateway API inference extension asks for."""
import subprocess
import tempfile
import unittest
import urllib.request

from relay import BIN, Prometheus, Relay, until

NAMES = ("vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")


class VllmMetrics(unittest.TestCase):
    def start(self, *more):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        relay = Relay(folder.name, prefill=1, decode=1, more=more)
        self.addCleanup(relay.stop)
        return relay

    def page(self, relay):
        with urllib.request.urlopen(f"http://{relay.announcement['metrics']}/metrics", timeout=60) as answer:
            return answer.read().decode()

    def test_under_load(self):
        relay = self.start("--vllm-metrics")
        # The page is one that Prometheus' own linter understands: it says what it thinks of names, and fails where it can't read.
        checked = subprocess.run(["promtool", "check", "metrics"], input=self.page(relay), capture_output=True, text=True)
        self.assertNotIn("error while", checked.stderr)
        data = tempfile.TemporaryDirectory()
        self.addCleanup(data.cleanup)
        prometheus = Prometheus(relay.observability / "prometheus.yml", data.name)
        self.addCleanup(prometheus.stop)

        def values():
            """{name: value}, once all four are there."""
            found = {labels["__name__"]: (labels.get("model_name"), value) for labels, value in prometheus.query('{__name__=~"vllm:.*"}')}
            return found if set(found) == set(NAMES) else None

        idle = until(values, "the four metrics")
        self.assertEqual(idle, {name: ("baton-tiny", 0) for name in NAMES})
        # More long answers than the decode worker computes at a time: some run, some wait, and both hold KV.
        load = subprocess.Popen(
            [BIN / "baton", "bench", "--server", relay.router, "--concurrency", "48", "--duration", "30m", "--prompt-tokens", "200", "--output-tokens", "400"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(load.wait)
        self.addCleanup(load.kill)

        def busy():
            now = {name: value for name, (_, value) in (values() or {}).items()}
            used = now.get("vllm:kv_cache_usage_perc", 0)
            return now if now.get("vllm:num_requests_running", 0) > 1 and 0 < used <= 1 and now["vllm:gpu_cache_usage_perc"] == used else None

        until(busy, lambda: f"no load: {values()}")
        until(lambda: (values() or {}).get("vllm:num_requests_waiting", ("", 0))[1] > 0, lambda: f"nobody waits: {values()}")
        load.kill()
        until(lambda: values() == idle, lambda: f"it does not end: {values()}")

    def test_not_unless_asked_for(self):
        self.assertNotIn("vllm:", self.page(self.start()))


if __name__ == "__main__":
    unittest.main()
