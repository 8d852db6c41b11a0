"""Renders the chart with helm and finds objects in what it made. For tests."""
import json
import os
import pathlib
import subprocess
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "baton"
HELM = os.environ.get("HELM", str(ROOT / "build" / "tools" / "bin" / "helm"))
ROLES = ("router", "prefill", "decode")
SUM = "0" * 64
# A model that is pulled from a hub.
HUB = {
    "name": "m",
    "source": "huggingFace",
    "huggingFace": {"repository": "o/m", "revision": "a" * 40, "files": {"config.json": SUM, "model.safetensors": SUM}, "tokenSecret": {"name": "t"}},
}
# The dashboards are long, and the loader in C is twenty times faster.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def each(value):
    """The same keys for every role."""
    return {role: value for role in ROLES}


class Refused(Exception):
    """helm would not render; the message is what the user reads."""


class Release:
    def __init__(self, values=None, preset=None, name="r", namespace="ns", chart=CHART):
        command = [HELM, "template", name, str(chart), "--namespace", namespace, "--kube-version", "1.34.0"]
        if preset:
            command += ["--values", str(CHART / "presets" / f"{preset}.yaml")]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(values or {}, file)
            file.flush()
            done = subprocess.run(command + ["--values", file.name], capture_output=True, text=True)
        if done.returncode != 0:
            raise Refused(done.stderr)
        self.text = done.stdout
        self.objects = [one for one in yaml.load_all(done.stdout, Loader=LOADER) if one]

    def all(self, kind):
        return [one for one in self.objects if one["kind"] == kind]

    def one(self, kind, name):
        found = [one for one in self.all(kind) if one["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} {kind} {name}; there are {[o['metadata']['name'] for o in self.all(kind)]}"
        return found[0]

    def workload(self, role):
        return self.one("StatefulSet" if role == "node" else "Deployment", f"r-baton-{role}")

    def workloads(self):
        return self.all("Deployment") + self.all("StatefulSet")

    def pod(self, role):
        return self.workload(role)["spec"]["template"]["spec"]

    def container(self, role):
        return self.pod(role)["containers"][0]

    def flags(self, role):
        """{"--listen": "[::]:8470", ...}; a switch is True. What a node's workers of one role get is named by the inner flag, as in
        "--prefill-flag=--chunk-tokens"."""
        flags = {}
        for flag in self.container(role)["args"]:
            if flag.startswith("--"):
                name, _, value = flag.partition("=")
                if name in ("--prefill-flag", "--decode-flag"):
                    inner, _, value = value.partition("=")
                    name = f"{name}={inner}"
                flags[name] = value or True
        return flags
