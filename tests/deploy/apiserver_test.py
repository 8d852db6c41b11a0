#!/usr/bin/env python3
"""The chart against a real Kubernetes API: every preset is checked, defaulted and admitted by a kube-apiserver, installed and upgraded by
helm. What no schema knows shows here: fields that can't change, references between fields, admission, features that are off."""
import copy
import pathlib
import tempfile
import unittest

import yaml
from apiserver import Apiserver
from chart import CHART, LOADER, Release

PRESETS = {"defaults": None} | {path.stem: path for path in sorted((CHART / "presets").glob("*.yaml"))}
CASES = {path.stem: path for path in sorted((CHART.parent / "cases").glob("*.yaml"))}
EVERY = PRESETS | CASES
# Pods that Kubernetes' strictest standard refuses, with what it refuses.
PRIVILEGED = {"many-nodes": "IPC_LOCK", "everything": "IPC_LOCK"}


def load(path):
    return yaml.load(path.read_text(), Loader=LOADER) if path else {}


def lost(said, stored, where=""):
    """What was said and is not there any more, or otherwise. The API rewrites quantities (1000m is 1): those are not compared."""
    if isinstance(said, dict):
        if not isinstance(stored, dict):
            return [where]
        skip = {"requests", "limits", "sizeLimit"}
        # An empty value and none are one to the API.
        wanted = {key: value for key, value in said.items() if key not in skip and value not in (None, {}, [], "", False)}
        return [one for key, value in wanted.items() for one in (lost(value, stored[key], f"{where}.{key}") if key in stored else [f"{where}.{key}"])]
    if isinstance(said, list):
        if not isinstance(stored, list) or len(said) != len(stored):
            return [where]
        return [one for index, (a, b) in enumerate(zip(said, stored)) for one in lost(a, b, f"{where}[{index}]")]
    return [] if said == stored else [f"{where}: {said!r} became {stored!r}"]


class Api(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.api = Apiserver(folder.name)
        cls.addClassCleanup(cls.api.stop)
        print("kube-apiserver", cls.api.ask("GET", "/version")[1]["gitVersion"], "with", ", ".join(cls.api.take_crds()))
        cls.api.namespace("ns", "privileged")
        cls.api.namespace("strict", "restricted")
        for name in ("inference", "high"):  # that presets name
            cls.api.must_create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000})

    def done(self, done):
        self.assertEqual(done.returncode, 0, f"{' '.join(done.args)}\n{done.stdout}{done.stderr}")

    def gone(self, name):
        self.addCleanup(self.api.helm, "uninstall", name, "--ignore-not-found")

    def test_the_api_takes_every_object_as_it_is(self):
        for name, path in EVERY.items():
            objects = Release(load(path)).objects
            self.assertGreater(len(objects), 5)
            for one in objects:
                one["metadata"].pop("namespace", None)
                with self.subTest(f"{name}: {one['kind']} {one['metadata']['name']}"):
                    status, answer, warnings = self.api.create(one, dryRun="All", fieldValidation="Strict")
                    self.assertEqual(status, 201, answer)
                    self.assertEqual(warnings, [])
                    self.assertEqual(lost(one, answer), [], "the API left out or changed what the chart said")

    def test_pods_keep_the_strictest_standard(self):
        for name, path in EVERY.items():
            release = Release(load(path))
            pods = {one["metadata"]["name"]: copy.deepcopy(one["spec"]["template"]) for one in release.all("Deployment")}
            pods |= {one["metadata"]["name"]: copy.deepcopy(one) for one in release.all("Pod")}
            for role, pod in pods.items():
                pod |= {"apiVersion": "v1", "kind": "Pod"}
                pod["metadata"]["name"] = "p"
                # An account that stands there.
                pod["spec"]["serviceAccountName"] = "default"
                with self.subTest(f"{name}: {role}"):
                    status, answer, _ = self.api.create(pod, "strict", dryRun="All", fieldValidation="Strict")
                    if name in PRIVILEGED and not role.endswith("-test"):
                        self.assertEqual(status, 403, answer)
                        self.assertIn("PodSecurity", answer["message"])
                        self.assertIn(PRIVILEGED[name], answer["message"])
                        status, answer, _ = self.api.create(pod, "ns", dryRun="All", fieldValidation="Strict")
                    self.assertEqual(status, 201, answer)

    def test_helm_installs_every_preset(self):
        for name, path in EVERY.items():
            with self.subTest(name):
                release = f"i-{name}"[:20]
                self.gone(release)
                self.done(self.api.release("install", release, path, "--dry-run=server"))
                self.done(self.api.release("install", release, path))
                path = "/apis/apps/v1/namespaces/ns/deployments"
                made = self.api.ask("GET", path, labelSelector=f"app.kubernetes.io/instance={release}")[1]["items"]
                self.assertEqual(len(made), 2 if name == "s3-keda" else 3)

    def test_helm_upgrades_from_each_preset_to_each(self):
        """In one walk over all ordered pairs; then back by rollback."""
        names = list(PRESETS)
        walk = [names[0]]
        for index, one in enumerate(names):  # each step is a pair, and each pair a step
            for other in names[index + 1 :]:
                walk += [one, other] if walk[-1] != one else [other]
        walk += list(reversed(walk))
        pairs = set(zip(walk, walk[1:]))
        self.assertLessEqual({(a, b) for a in names for b in names if a != b}, pairs)
        steps = [b for a, b in zip(walk, walk[1:]) if a != b]
        self.gone("u")
        self.done(self.api.release("install", "u", PRESETS[walk[0]]))
        for one in steps + list(CASES):
            with self.subTest(f"to {one}"):
                self.done(self.api.release("upgrade", "u", EVERY[one], "--reset-values"))
        self.done(self.api.helm("rollback", "u", "1"))

    def test_the_api_refuses_what_a_schema_takes(self):
        """Or this test would be worth nothing."""
        mount = {"decode": {"extraVolumeMounts": [{"name": "absent", "mountPath": "/v"}]}}
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(mount, file)
            file.flush()
            refused = self.api.release("install", "refused", pathlib.Path(file.name), "--dry-run=server")
            self.gone("refused")
            # helm's dry run asks only what exists; the API itself is asked here.
            deployment = Release(mount).one("Deployment", "r-baton-decode")
            status, answer, _ = self.api.create(deployment, dryRun="All", fieldValidation="Strict")
            self.assertEqual(status, 422, refused.stdout)
            self.assertIn('volumeMounts[1].name: Not found: "absent"', answer["message"].replace("volumeMounts[2]", "volumeMounts[1]"))
        deployment = Release().one("Deployment", "r-baton-decode")
        deployment["spec"]["template"]["spec"]["terminationGracePeriod"] = 1
        status, answer, _ = self.api.create(deployment, dryRun="All", fieldValidation="Strict")
        self.assertEqual(status, 400, answer)
        self.assertIn("unknown field", answer["message"])


if __name__ == "__main__":
    unittest.main()
