#!/usr/bin/env python3
"""Every flag that the chart or the compose file passes is one that the binary has, and addresses are those that it means."""
import functools
import json
import re
import socket
import subprocess
import unittest

import jsonschema
import yaml
from chart import CHART, Release
from relay import BIN, MODEL, ROOT, Process

# Flags that the chart knows and this build does not have, with the reason.
NOT_HERE = {}


@functools.cache
def known(binary, *command):
    done = subprocess.run([BIN / binary, *command, "--help-all"], capture_output=True, text=True)
    return set(re.findall(r"(?<!\S)(--[a-z][a-z-]*)", done.stdout))


class Flags(unittest.TestCase):
    def check(self, container):
        binary = container["command"][0].rsplit("/", 1)[1]
        sub = [container["args"][0]] if binary == "baton" else []
        for flag in container["args"][len(sub) :]:
            name = flag.split("=")[0]
            if name in ("--prefill-flag", "--decode-flag"):  # of the workers that it starts
                self.assertIn(flag.split("=")[1], known(f"baton-{name.split('-')[2]}"), flag)
            if name.startswith("--") and name not in NOT_HERE:
                self.assertIn(name, known(binary, *sub), f"{binary} {' '.join(sub)}")

    def test_of_the_chart(self):
        cases = [{}]
        cases += [yaml.safe_load(path.read_text()) for folder in (CHART / "presets", CHART.parent / "cases") for path in sorted(folder.glob("*.yaml"))]
        for values in cases:
            release = Release(values)
            pods = [one["spec"]["template"]["spec"] for one in release.workloads()] + [one["spec"] for one in release.all("Pod")]
            for pod in pods:
                for container in pod["containers"] + pod.get("initContainers", []):
                    # An operator's own container may leave its command to its image.
                    if container.get("command", ["sh"])[0] != "sh":
                        with self.subTest(container["name"]):
                            self.check(container)

    def test_of_compose(self):
        compose = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())
        ours = [one for one in compose["services"].values() if one["image"].startswith("baton:")]
        self.assertEqual(len(ours), 5)
        for service in ours:
            self.check({"command": service["entrypoint"], "args": service["command"]})

    def test_exceptions_are_said(self):
        every = set().union(*(known(binary) for binary in ("baton-router", "baton-prefill", "baton-decode", "baton-gateway")))
        for flag, reason in NOT_HERE.items():
            print(f"  {flag}: {'is here: take it off NOT_HERE' if flag in every else reason}")


class Listening(unittest.TestCase):
    """Ports of pods answer under both families, as the chart has them."""

    def start(self, release, role, *more):
        flags = [f"{name}={value.rsplit(':', 1)[0]}:0" for name, value in release.flags(role).items() if name in ("--listen", "--metrics", "--health")]
        process = Process([BIN / f"baton-{role}", *flags, *more])
        self.addCleanup(process.stop)
        return [int(one) for one in process.wait_for(r"^ready \w+=\S+:(\d+) metrics=\S+:(\d+)").groups()]

    def answers(self, port, family):
        try:
            with socket.create_connection(({socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}[family], port), 60):
                return True
        except ConnectionRefusedError:
            return False

    def test_on_both_families(self):
        release = Release({})
        ports = self.start(release, "gateway", "--router=127.0.0.1:1") + self.start(release, "decode", f"--model={MODEL}", "--worker-id=w", "--kv-memory=16MiB")
        self.assertEqual(len(ports), 4)
        for port in ports:
            self.assertTrue(self.answers(port, socket.AF_INET), port)
            self.assertTrue(self.answers(port, socket.AF_INET6), port)


class Compose(unittest.TestCase):
    def test_the_compose_specification_takes_it(self):
        schema = json.loads((ROOT / "build" / "tools" / "schemas" / "compose-spec.json").read_text())
        compose = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())
        check = jsonschema.validators.validator_for(schema)(schema)
        self.assertEqual([f"{error.json_path}: {error.message}" for error in check.iter_errors(compose)], [])
        # It can refuse.
        compose["services"]["router"]["read_onyl"] = True
        self.assertTrue(list(check.iter_errors(compose)))

    def test_mounts_are_there(self):
        home = ROOT / "deploy" / "compose"
        compose = yaml.safe_load((home / "compose.yaml").read_text())
        for service in compose["services"].values():
            for mount in service.get("volumes", []):
                self.assertTrue((home / mount.split(":")[0]).exists(), mount)

    def test_prometheus_takes_its_configuration(self):
        config = yaml.safe_load((ROOT / "deploy" / "compose" / "prometheus.yml").read_text())
        compose = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())
        for job in config["scrape_configs"]:
            for group in job["static_configs"]:
                host, port = group["targets"][0].split(":")
                flags = " ".join(compose["services"][host]["command"])
                self.assertIn(f"--metrics=0.0.0.0:{port}", flags)
                self.assertEqual(set(group["labels"]), {"namespace", "release", "component", "pod"})


if __name__ == "__main__":
    unittest.main()
