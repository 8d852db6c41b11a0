#!/usr/bin/env python3
"""Several models in one release: each has pools of its own, a folder of its own, and routers that find both."""
import json
import sys
import unittest

import yaml
from chart import CHART, LOADER, Refused, Release
from network import Pod, allowed

CASE = yaml.load((CHART.parent / "cases" / "models.yaml").read_text(), Loader=LOADER)
GUARD = {"model": {"name": "guard", "image": {"path": "/g"}, "source": "image"}, "classifier": "auto", "prefill": {"enabled": False}}


def models_file(release):
    return json.loads(release.one("ConfigMap", "r-baton-models")["data"]["models.json"])


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.release = Release(CASE)

    def test_each_has_pools_of_its_own(self):
        self.assertEqual(
            {one["metadata"]["name"].removeprefix("r-baton-"): one["spec"].get("replicas") for one in self.release.workloads()},
            {"router": 2, "gateway": 2, "prefill": 1, "decode": 1, "prefill-coder": None, "decode-coder": None, "decode-guard": 1},
        )
        self.assertEqual(self.release.flags("decode-coder")["--kv-memory"], "1GiB")
        self.assertEqual(self.release.flags("prefill-coder")["--kv-memory"], self.release.flags("prefill")["--kv-memory"])
        self.assertEqual(self.release.flags("decode-guard")["--threads"], "1")
        for role in ("prefill-coder", "decode-coder"):
            self.assertEqual(self.release.flags(role)["--model-name"], "coder")

    def test_no_pod_is_of_two_pools(self):
        """Whatever selects pods of one pool selects none of another."""
        pods = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in self.release.workloads()}
        selecting = [(one["metadata"]["name"], one["spec"]["selector"]["matchLabels"]) for one in self.release.workloads() + self.release.all("PodDisruptionBudget")]
        selecting += [(one["metadata"]["name"], one["spec"]["selector"]) for one in self.release.all("Service") if one["metadata"]["name"] in pods]
        self.assertGreater(len(selecting), 15)
        for name, selector in selecting:
            self.assertEqual([pod for pod, labels in pods.items() if selector.items() <= labels.items()], [name])

    def test_routers_find_all_workers(self):
        services = {f"dns:///{one['metadata']['name']}.ns.svc:8470" for one in self.release.all("Service")}
        file = models_file(self.release)
        self.assertEqual([one["name"] for one in file["models"]], ["coder", "guard"])
        coder, guard = file["models"]
        self.assertEqual((coder["output_format"], guard["classifier"]), ("hermes", "auto"))
        self.assertEqual((len(coder["prefill"]), "prefill" in guard), (1, False))
        for address in coder["prefill"] + coder["decode"] + guard["decode"]:
            self.assertIn(address, services)
        self.assertEqual(file["moderation"], {"policy": "block", "input": True, "fail_open": False, "timeout_seconds": 2.5})
        self.assertNotIn("moderation", models_file(Release({"models": {"guard": GUARD}})))

    def test_who_may_use_a_model_and_how_much(self):
        limits = {"tenants": ["ads"], "maxTokens": 512, "defaultMaxTokens": 128, "requestsPerMinute": 60, "promptTokensPerMinute": 2000000, "outputTokensPerMinute": 0}
        (own,) = models_file(Release({"models": {"own": {"model": GUARD["model"], **limits}}}))["models"]
        told = {name: own[name] for name in own if name not in ("name", "folder", "decode", "prefill")}
        self.assertEqual(told, {"tenants": ["ads"], "max_tokens": 512, "default_max_tokens": 128, "requests_per_minute": 60, "prompt_tokens_per_minute": 2000000})
        for wrong in ({"tenants": []}, {"tenants": "ads"}, {"maxTokens": -1}, {"requestsPerMinute": "many"}):
            with self.assertRaises(Refused):
                Release({"models": {"own": {"model": GUARD["model"], **wrong}}})

    def test_routers_hold_all_folders(self):
        """Where the models file says that a folder is, a volume of that model is mounted, which its own files fill."""
        pod = self.release.pod("router")
        mounts = {one["mountPath"]: one["name"] for one in pod["containers"][0]["volumeMounts"]}
        volumes = {one["name"]: one for one in pod["volumes"]}
        self.assertEqual(self.release.flags("router")["--model"], "/models")
        self.assertEqual(models_file(self.release)["models"][0]["folder"], "/models-coder")
        self.assertEqual((mounts["/models"], mounts["/models-coder"]), ("model", "model-coder"))
        pulls = {one["name"]: {mount["mountPath"]: mount["name"] for mount in one["volumeMounts"]} for one in pod["initContainers"]}
        self.assertEqual(list(pulls), ["model", "model-coder"])
        for name in pulls:
            self.assertEqual(pulls[name]["/models"], name)
            manifest = volumes[pulls[name]["/etc/baton/model"]]["configMap"]["name"]
            self.assertIn("/coder" if name == "model-coder" else "/owner/main", self.release.one("ConfigMap", manifest)["data"]["manifest"])
        self.assertEqual(models_file(self.release)["models"][1]["folder"], "/opt/baton/models/baton-guard")

    def test_workers_hold_their_own_folder(self):
        for role, folder in (("decode", "/models"), ("decode-coder", "/models-coder"), ("decode-guard", "/opt/baton/models/baton-guard")):
            self.assertEqual(self.release.flags(role)["--model"], folder)
            mounts = [one["mountPath"] for one in self.release.container(role)["volumeMounts"] if "models" in one["mountPath"]]
            self.assertEqual(mounts, [folder] if folder.startswith("/models") else [], role)

    def test_nothing_of_a_folders_place_is_inherited(self):
        """The main model's claim, files and revision are not those of another one."""
        text = json.dumps([one for one in self.release.objects if one["metadata"]["name"].endswith("-coder")])
        self.assertIn(CASE["models"]["coder"]["model"]["s3"]["files"]["config.json"], text)
        self.assertNotIn(CASE["model"]["huggingFace"]["files"]["config.json"], text)
        self.assertNotIn('"claimName"', text)
        for source, missing in (("huggingFace", "repository"), ("s3", "url"), ("pvc", "claimName"), ("hostPath", "path"), ("image", "path")):
            with self.subTest(source), self.assertRaises(Refused) as refused:
                Release(CASE | {"models": {"other": {"model": {"name": "other", "source": source}}}, "moderation": {}})
            self.assertIn(f"models.other: model.source is {source}", str(refused.exception))
            self.assertIn(missing, str(refused.exception))

    def test_a_router_starts_again_when_the_models_change(self):
        sums = [Release({"models": {"guard": GUARD | {"classifier": name}}}).workload("router")["spec"]["template"]["metadata"]["annotations"]["checksum/models"] for name in ("auto", "auto", "granite_guardian")]
        self.assertEqual(sums[0], sums[1])
        self.assertNotEqual(sums[0], sums[2])

    def test_routers_and_workers_reach_one_another(self):
        ports = {"grpc": 8470, "health": 8471, "metrics": 9470}
        policies = self.release.all("NetworkPolicy")
        pods = {name: Pod(self.release.workload(name)["spec"]["template"]["metadata"]["labels"], ports=ports) for name in ("router", "prefill", "decode", "prefill-coder", "decode-coder", "decode-guard")}
        client, elsewhere = Pod({"app": "client"}), Pod({}, namespace="internet")
        for name, pod in pods.items():
            if name != "router":
                self.assertTrue(allowed(policies, pods["router"], pod, "grpc"), name)
                self.assertFalse(allowed(policies, client, pod, "grpc"), name)
            self.assertTrue(allowed(policies, pod, elsewhere, 443), "it pulls a model")
        self.assertTrue(allowed(policies, pods["decode-coder"], pods["prefill-coder"], "grpc"))
        self.assertFalse(allowed(policies, pods["decode-coder"], pods["prefill-coder"], "health"))

    def test_beside_nodes(self):
        release = Release({"models": {"guard": GUARD}}, preset="node-8gpu")
        self.assertEqual({one["metadata"]["name"] for one in release.workloads()}, {"r-baton-router", "r-baton-gateway", "r-baton-node", "r-baton-decode-guard"})
        router, guard = (Pod(release.workload(name)["spec"]["template"]["metadata"]["labels"], ports={"grpc": 8470}) for name in ("router", "decode-guard"))
        node = Pod(release.workload("node")["spec"]["template"]["metadata"]["labels"])
        policies = release.all("NetworkPolicy")
        self.assertTrue(allowed(policies, router, guard, "grpc"))
        self.assertTrue(allowed(policies, router, node, 8480))
        # A model without prefill workers does not ask for what the node's link needs.
        self.assertFalse([flag for flag in release.flags("decode-guard") if "floor" in flag or "peers" in flag])
        # The image of CPUs has no NCCL.
        self.assertEqual((release.flags("decode-guard")["--link"], release.flags("node")["--link"]), ("host", "nccl"))
        self.assertNotIn("NCCL", str(release.pod("decode-guard")))
        on_gpus = Release({"models": {"guard": GUARD | {"decode": {"gpus": 1}}}}, preset="node-8gpu")
        self.assertEqual(on_gpus.flags("decode-guard")["--link"], "nccl")

    def test_autoscalers_look_at_their_own_pods(self):
        coder = self.release.one("ScaledObject", "r-baton-prefill-coder")
        queries = [one["metadata"]["query"] for one in coder["spec"]["triggers"]]
        self.assertEqual(len(queries), 1)
        self.assertIn('pod=~"r-baton-prefill-coder-[a-z0-9]+-[a-z0-9]+"', queries[0])
        both = {"autoscaling": {"enabled": True, "kind": "keda"}}
        main = Release({"models": {"guard": GUARD}, "prefill": both}).one("ScaledObject", "r-baton-prefill")
        self.assertIn('pod=~"r-baton-prefill-[a-z0-9]+-[a-z0-9]+"', main["spec"]["triggers"][0]["metadata"]["query"])
        alone = Release({"prefill": both}).one("ScaledObject", "r-baton-prefill")
        self.assertNotIn("pod=~", str(alone))

    def test_metrics_go_by_role(self):
        relabelings = self.release.one("ServiceMonitor", "r-baton")["spec"]["endpoints"][0]["relabelings"]
        self.assertIn({"sourceLabels": ["__meta_kubernetes_pod_label_app_kubernetes_io_component"], "regex": "([a-z]+)(-.*)?", "targetLabel": "component"}, relabelings)

    MISTAKES = {
        "two models of one name": ({"models": {"guard": GUARD | {"model": GUARD["model"] | {"name": "baton-tiny"}}}}, ["models.guard.model.name is baton-tiny", "model.name"]),
        "moderation by nobody": ({"moderation": {"policy": "block"}}, ["moderation.policy", "classifier"]),
        "a name that no Service can have": ({"fullnameOverride": "b" * 46, "models": {"a-rather-long-key": GUARD}}, ["63", "shorten the key"]),
        "a key that no name can have": ({"models": {"Guard": GUARD}}, ["Guard"]),
        "a misspelt key": ({"models": {"guard": GUARD | {"decoder": {}}}}, ["decoder"]),
        "no model": ({"models": {"guard": {"classifier": "auto"}}}, ["model"]),
        "a flag of the pool twice": ({"models": {"guard": GUARD | {"decode": {"extraArgs": ["--threads=2"]}}}}, ["models.guard: decode.extraArgs", "--threads"]),
        "--models beside models": ({"models": {"guard": GUARD}, "router": {"extraArgs": ["--models=/f"]}}, ["router.extraArgs", "--models"]),
        "the CPU image on GPUs": ({"models": {"guard": GUARD | {"decode": {"gpus": 1, "image": {"tag": "0.1.0"}}}}}, ["models.guard: decode.gpus is 1", "Dockerfile.cuda"]),
    }

    def test_mistakes_are_refused_in_words(self):
        for what, (values, words) in self.MISTAKES.items():
            with self.subTest(what):
                with self.assertRaises(Refused) as refused:
                    Release(values)
                for word in words:
                    self.assertIn(word, str(refused.exception).replace("/", "."))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
