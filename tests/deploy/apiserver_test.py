#!/usr/bin/env python3
"""The chart against a real Kubernetes API: every preset is checked, defaulted and admitted by a kube-apiserver, installed and upgraded by
helm. What no schema knows shows here: fields that can't change, references between fields, admission, features that are off."""
import copy
import json
import re
import tempfile
import unittest

import yaml
from apiserver import Apiserver
from chart import CHART, LOADER, Release

PRESETS = {"defaults": None} | {path.stem: path for path in sorted((CHART / "presets").glob("*.yaml"))}
CASES = {path.stem: path for path in sorted((CHART.parent / "cases").glob("*.yaml"))}
EVERY = PRESETS | CASES
# Pods that Kubernetes' strictest standard refuses, with what it refuses: GPUs' direct links and folders of the node have their price.
PRIVILEGED = {
    **{("node-8gpu", f"r-baton-{role}"): "hostPath" for role in ("router", "node")},
    ("node", "r-baton-node"): "IPC_LOCK",
    **{("everything", f"r-baton-{role}"): "IPC_LOCK" for role in ("router", "prefill", "decode")},
}
SUFFIXES = {"": 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def load(path):
    return yaml.load(path.read_text(), Loader=LOADER) if path else {}


def quantity(value):
    """1000m is 1 to the API. None: no quantity."""
    match = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(value))
    return float(match[1]) * SUFFIXES[match[2]] if match and match[2] in SUFFIXES else None


def lost(said, stored, where=""):
    """What was said and is not there any more, or otherwise."""
    if isinstance(said, dict):
        if not isinstance(stored, dict):
            return [where]
        # An empty value and none are one to the API.
        wanted = {key: value for key, value in said.items() if value not in (None, {}, [], "", False)}
        return [one for key, value in wanted.items() for one in (lost(value, stored[key], f"{where}.{key}") if key in stored else [f"{where}.{key}"])]
    if isinstance(said, list):
        if not isinstance(stored, list) or len(said) != len(stored):
            return [where]
        return [one for index, (a, b) in enumerate(zip(said, stored)) for one in lost(a, b, f"{where}[{index}]")]
    same = said == stored or (quantity(said) is not None and quantity(said) == quantity(stored))
    return [] if same else [f"{where}: {said!r} became {stored!r}"]


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
        cls.api.namespace("monitoring", "restricted")
        for name in ("inference", "high"):  # that presets name
            cls.api.must_create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000})
        cls.api.must_create({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "special"}, "handler": "special"})

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
                    if one["kind"] == "Pod":  # it tolerates a node that is away for a while
                        answer["spec"]["tolerations"] = [t for t in answer["spec"]["tolerations"] if not t.get("key", "").startswith("node.kubernetes.io/")]
                    self.assertEqual(lost(one, answer), [], "the API left out or changed what the chart said")

    def test_pods_keep_the_strictest_standard(self):
        for name, path in EVERY.items():
            release = Release(load(path))
            pods = {one["metadata"]["name"]: copy.deepcopy(one["spec"]["template"]) for one in release.workloads()}
            pods |= {one["metadata"]["name"]: copy.deepcopy(one) for one in release.all("Pod")}
            for role, pod in pods.items():
                pod |= {"apiVersion": "v1", "kind": "Pod"}
                pod["metadata"]["name"] = "p"
                # An account that stands there.
                pod["spec"]["serviceAccountName"] = "default"
                with self.subTest(f"{name}: {role}"):
                    status, answer, _ = self.api.create(pod, "strict", dryRun="All", fieldValidation="Strict")
                    if (name, role) in PRIVILEGED:
                        self.assertEqual(status, 403, answer)
                        self.assertIn("PodSecurity", answer["message"])
                        self.assertIn(PRIVILEGED[(name, role)], answer["message"])
                        status, answer, _ = self.api.create(pod, "ns", dryRun="All", fieldValidation="Strict")
                    self.assertEqual(status, 201, answer)

    def test_helm_installs_every_preset(self):
        for name, path in EVERY.items():
            with self.subTest(name):
                release = f"i-{name}"[:20]
                self.gone(release)
                self.done(self.api.release("install", release, path, "--dry-run=server"))
                self.done(self.api.release("install", release, path))
                made = set()
                for kind in ("deployments", "statefulsets"):
                    address = f"/apis/apps/v1/namespaces/ns/{kind}"
                    items = self.api.ask("GET", address, labelSelector=f"app.kubernetes.io/instance={release}")[1]["items"]
                    made |= {one["metadata"]["name"].removeprefix(release) for one in items}
                self.assertEqual(made, {one["metadata"]["name"].removeprefix("r") for one in Release(load(path)).workloads()})
                self.assertIn("-baton-router", made)
                self.done(self.api.helm("uninstall", release))  # dashboards are of one release

    def test_helm_upgrades_from_preset_to_preset(self):
        """Around all of them and back the same way, so that pools become nodes' pods and those pools again; then back by rollback."""
        names = list(PRESETS)
        first, walk = names[0], [*names, *reversed(names[:-1])]
        self.gone("u")
        self.done(self.api.release("install", "u", PRESETS[first]))
        for one in walk[1:] + list(CASES):
            with self.subTest(f"to {one}"):
                self.done(self.api.release("upgrade", "u", EVERY[one], "--reset-values"))
        self.done(self.api.helm("rollback", "u"))

    def test_dashboards_are_of_one_release(self):
        on = ["--set", "observability.dashboards.enabled=true", "--set", "observability.namespace=monitoring"]
        for name in ("d", "e"):
            self.gone(name)
        self.done(self.api.release("install", "d", None, *on))
        self.done(self.api.release("upgrade", "d", None, *on))
        second = self.api.release("install", "e", None, *on)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn("release d in ns, and they show all releases: leave it off here", second.stderr)
        address = "/apis/apps/v1/namespaces/ns/deployments/e-baton-decode"
        self.assertEqual(self.api.ask("GET", address)[0], 404, "nothing is made")
        self.done(self.api.release("install", "e"))
        self.done(self.api.helm("uninstall", "d"))
        self.done(self.api.release("upgrade", "e", None, *on))

    def test_an_autoscaler_keeps_the_pods_that_it_finds(self):
        """There is no controller here: what the API stores is what the chart and this test have said."""
        self.gone("a")
        base = "/apis/apps/v1/namespaces/ns/deployments"
        roles = ("a-baton-router", "a-baton-prefill", "a-baton-decode", "a-baton-gateway", "a-baton-decode-more")
        replicas = lambda: {role: self.api.ask("GET", f"{base}/{role}")[1]["spec"]["replicas"] for role in roles}

        def release(verb, number, on):
            values = {role: {"replicas": number, "autoscaling": {"enabled": on}} for role in ("router", "prefill", "decode", "gateway")}
            values["models"] = {"more": {"model": {"name": "more", "source": "hostPath", "hostPath": {"path": "/m"}}}}
            with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
                json.dump(values, file)
                file.flush()
                self.done(self.api.release(verb, "a", file.name))

        release("install", 4, False)
        self.assertEqual(set(replicas().values()), {4})
        release("upgrade", 4, True)
        self.assertEqual(set(replicas().values()), {4}, "switched on")
        for role in roles:  # the autoscaler's work
            scale = {"spec": {"replicas": 7}}
            self.assertEqual(self.api.ask("PATCH", f"{base}/{role}/scale", scale, kind="application/merge-patch+json")[0], 200)
        release("upgrade", 3, True)
        self.assertEqual(set(replicas().values()), {7}, "an upgrade while it is on")
        release("upgrade", 3, False)
        self.assertEqual(set(replicas().values()), {3}, "switched off")

    def test_the_api_refuses_what_a_schema_takes(self):
        """Or this test would be worth nothing."""
        values = {"decode": {"extraVolumeMounts": [{"name": "absent", "mountPath": "/v"}]}}
        deployment = Release(values).one("Deployment", "r-baton-decode")
        status, answer, _ = self.api.create(deployment, dryRun="All", fieldValidation="Strict")
        self.assertEqual(status, 422, answer)
        self.assertRegex(answer["message"], r'volumeMounts\[\d\]\.name: Not found: "absent"')
        self.assertTrue(lost(deployment, Release().one("Deployment", "r-baton-decode")))
        deployment = Release().one("Deployment", "r-baton-decode")
        deployment["spec"]["template"]["spec"]["terminationGracePeriod"] = 1
        status, answer, _ = self.api.create(deployment, dryRun="All", fieldValidation="Strict")
        self.assertEqual(status, 400, answer)
        self.assertIn("unknown field", answer["message"])


if __name__ == "__main__":
    unittest.main()
