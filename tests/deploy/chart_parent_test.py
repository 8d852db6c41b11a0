#!/usr/bin/env python3
"""The chart as a part of another one: by a condition, under several names, with the parent's global values."""
import copy
import os
import pathlib
import sys
import tempfile
import unittest

import yaml
from chart import CHART, Refused, Release


class Parent(unittest.TestCase):
    def release(self, values, dependencies=({"alias": "small"}, {"alias": "large"}), **more):
        with tempfile.TemporaryDirectory() as folder:
            parent = pathlib.Path(folder) / "parent"
            (parent / "charts").mkdir(parents=True)
            os.symlink(CHART, parent / "charts" / "baton")
            version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
            one = {"name": "baton", "version": version, "repository": ""}
            chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [{**one, **own} for own in dependencies]}
            (parent / "Chart.yaml").write_text(yaml.safe_dump(chart))
            return Release(values, chart=parent, **more)

    def test_a_condition(self):
        dependency = [{"condition": "baton.enabled"}]
        self.assertTrue(self.release({"baton": {"enabled": True}}, dependency).one("Deployment", "r-baton-decode"))
        self.assertFalse(self.release({"baton": {"enabled": False}}, dependency).objects)
        with self.assertRaises(Refused) as refused:
            Release({"enabled": False})
        self.assertIn("condition", str(refused.exception))

    def test_two_names_are_two_fleets(self):
        on = {
            "observability": {"serviceMonitor": {"enabled": True}},
            "decode": {"autoscaling": {"enabled": True}},
            "prefill": {"autoscaling": {"enabled": True, "kind": "keda"}},
        }
        release = self.release({"small": on, "large": copy.deepcopy(on)})
        labels = [one["spec"]["template"]["metadata"]["labels"] for one in release.workloads()]
        for service in release.all("Service"):
            hit = [one for one in labels if service["spec"]["selector"].items() <= one.items()]
            self.assertEqual(len(hit), 1, service["metadata"]["name"])
        for name in ("r-small", "r-large"):
            # Metrics are told apart by the label that rules, dashboards and autoscalers go by.
            (endpoint,) = release.one("ServiceMonitor", name)["spec"]["endpoints"]
            self.assertIn({"targetLabel": "release", "replacement": name}, endpoint["relabelings"])
            external = release.one("HorizontalPodAutoscaler", f"{name}-decode")["spec"]["metrics"][1]["external"]["metric"]
            self.assertEqual(external["selector"]["matchLabels"], {"release": name})
            for trigger in release.one("ScaledObject", f"{name}-prefill")["spec"]["triggers"]:
                self.assertIn(f'release="{name}"', trigger["metadata"]["query"])
        alone = Release(on)
        self.assertIn({"targetLabel": "release", "replacement": "r"}, alone.one("ServiceMonitor", "r-baton")["spec"]["endpoints"][0]["relabelings"])

    def test_dashboards_are_made_once(self):
        on = lambda **more: {"observability": {"dashboards": {"enabled": True}, **more}}
        maps = lambda values: [(one["metadata"].get("namespace"), one["metadata"]["name"]) for one in self.release(values).all("ConfigMap")]
        once = maps({"large": on()})
        self.assertEqual(len(once), len(list((CHART / "files" / "dashboards").glob("*.json"))))
        self.assertEqual(maps({"small": on(), "large": on()}), once)
        self.assertEqual(len(maps({"small": on(), "large": on(namespace="monitoring")})), 2 * len(once), "in two namespaces, for two Grafanas")

    def test_names_that_an_alias_may_have(self):
        release = self.release({}, [{"alias": "Large_Model"}])
        self.assertTrue(release.one("Deployment", "r-large-model-decode"))

    def test_global_values_are_the_parents(self):
        release = self.release({"global": {"imageRegistry": "registry.example", "imagePullSecrets": [{"name": "s"}], "other": {"chart": 1}}})
        for one in release.workloads():
            pod = one["spec"]["template"]["spec"]
            self.assertEqual(pod["imagePullSecrets"], [{"name": "s"}])
            self.assertTrue(pod["containers"][0]["image"].startswith("registry.example/baton:"))
        for wrong in ({"imageRegistry": 1}, {"imagePullSecrets": "s"}):
            with self.assertRaises(Refused) as refused:
                self.release({"global": wrong})
            self.assertIn(next(iter(wrong)), str(refused.exception))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
