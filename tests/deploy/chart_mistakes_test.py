#!/usr/bin/env python3
"""What the chart refuses: values that contradict one another and pods that could not start, each in words that say what to do."""
import sys
import unittest

from chart import CHART, HUB, ROLES, SUM, Refused, Release, each


class GpuImages(unittest.TestCase):
    """Which image a role runs: the CPU image has no CUDA in it, and a worker that is told --backend=cuda there ends at once."""

    def workers(self, preset):
        return {"node-8gpu": ("node",), "one-gpu": ("decode",)}.get(preset, ("prefill", "decode"))

    def gpu_presets(self):
        found = [path.stem for path in sorted((CHART / "presets").glob("*.yaml")) if "gpus:" in path.read_text()]
        self.assertEqual(found, ["efa", "many-nodes", "node-8gpu", "one-gpu", "sockets"])
        return found

    def test_presets_run_the_cuda_image_on_gpus(self):
        for preset in self.gpu_presets():
            for values, tag in ((None, "0.1.0"), ({"image": {"tag": "2.3"}}, "2.3")):
                with self.subTest(preset, tag=tag):
                    release = Release(values, preset=preset)
                    for role in self.workers(preset):
                        self.assertEqual(release.flags(role)["--backend"], "cuda")
                        self.assertEqual(release.container(role)["image"], f"baton:{tag}-cuda")
                    self.assertEqual(release.container("router")["image"], f"baton:{tag}")
                    self.assertEqual(release.one("Pod", "r-baton-test")["spec"]["containers"][0]["image"], f"baton:{tag}")

    def test_roles_without_gpus_run_the_cpu_image(self):
        release = Release({"decode": {"gpus": 1}})
        self.assertEqual({role: release.container(role)["image"] for role in ROLES}, {"router": "baton:0.1.0", "prefill": "baton:0.1.0", "decode": "baton:0.1.0-cuda"})

    def test_one_cuda_image_may_serve_all(self):
        release = Release({"image": {"tag": "9-cuda"}, **each({"gpus": 1})})
        self.assertEqual({release.container(role)["image"] for role in ROLES}, {"baton:9-cuda"})

    def test_own_keys_win(self):
        digest = "sha256:" + "2" * 64
        release = Release({"image": {"digest": "sha256:" + SUM}, "prefill": {"gpus": 1, "image": {"digest": digest}}, "decode": {"gpus": 1, "image": {"repository": "x/gpu", "tag": "0.1.0"}}})
        self.assertEqual(release.container("prefill")["image"], f"baton@{digest}")
        self.assertEqual(release.container("decode")["image"], "x/gpu:0.1.0")

    def test_the_cpu_image_under_a_gpu_preset_is_refused(self):
        for preset in self.gpu_presets():
            first, last = self.workers(preset)[0], self.workers(preset)[-1]
            for values in ({first: {"image": {"tag": "0.1.0"}}}, {"image": {"tag": "7"}, last: {"image": {"tag": "7"}}}, {"image": {"digest": "sha256:" + SUM}}):
                with self.subTest(preset, values=values):
                    with self.assertRaises(Refused) as refused:
                        Release(values, preset=preset)
                    for word in ("--backend=cuda", "Dockerfile.cuda", "image.tag") if "digest" not in str(values) else ("image.digest", "Dockerfile.cuda"):
                        self.assertIn(word, str(refused.exception))


CLAIMED = {"backend": "cuda", "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}


class Mistakes(unittest.TestCase):
    """Common ones, each with the words that the user must find in the message."""

    CASES = {
        "a misspelt key": ({"decode": {"replica": 2}}, ["replica"]),
        "keys over a gateway without TLS": ({"tls": {"enabled": True, "existingSecret": "t"}, "gateway": {"service": {"type": "LoadBalancer"}}, "networkPolicy": {"enabled": False}}, ["gateway.tls.existingSecret", "LoadBalancer"]),
        "a balancer behind a closed door": ({"gateway": {"service": {"type": "LoadBalancer"}}}, ["gateway.service.type", "networkPolicy.clients", "ipBlock"]),
        "a node's port behind a closed door": ({"router": {"service": {"type": "NodePort"}}}, ["router.service.type", "networkPolicy.clients"]),
        "a name with capitals": ({"fullnameOverride": "Baton_Prod"}, ["fullnameOverride"]),
        "a name too long": ({"nameOverride": "n" * 50}, ["nameOverride"]),
        "a label of the chart's own on all": ({"commonLabels": {"app.kubernetes.io/name": "x"}}, ["commonLabels", "app.kubernetes.io.name"]),
        "a label of the chart's own on pods": ({"decode": {"podLabels": {"app.kubernetes.io/component": "x"}}}, ["decode.podLabels"]),
        "a label twice": ({"commonLabels": {"team": "a"}, "gateway": {"podLabels": {"team": "b"}}}, ["gateway.podLabels", "team"]),
        "a number in the environment": ({"decode": {"extraEnv": [{"name": "A", "value": 1}]}}, ["extraEnv"]),
        "another maker's GPUs": ({"decode": {"gpus": 1, "gpuResource": "amd.com/gpu"}}, ["decode.gpuResource", "NVIDIA"]),
        "ranks on slices of a GPU": ({"decode": {"gpus": 2, "tensorParallel": 2, "gpuResource": "nvidia.com/mig-3g.40gb"}}, ["decode.tensorParallel", "whole GPUs"]),
        "a budget that no drain meets": ({"router": {"replicas": 1, "pdb": {"minAvailable": 1, "maxUnavailable": None}}}, ["router.pdb.minAvailable", "drained"]),
        "a budget of nothing": ({"decode": {"pdb": {"maxUnavailable": 0}}}, ["decode.pdb.maxUnavailable", "drained"]),
        "a shared folder without a size": ({"kvShared": {"claimName": "kv"}}, ["kvShared.size"]),
        "a shared folder outside its claim": ({"kvShared": {"claimName": "kv", "size": "1TiB", "folder": "../x"}}, ["kvShared.folder"]),
        "no worker": ({"decode": {"replicas": 0}}, ["replicas"]),
        "a drafter that there is not": ({"decode": {"speculation": "ngram,beam"}}, ["speculation"]),
        "all drafters and some": ({"node": {"speculation": "auto,ngram"}}, ["speculation"]),
        "a number as text": ({"decode": {"replicas": "2"}}, ["replicas"]),
        "memory in GB": ({"decode": {"kvMemory": "8GB"}}, ["kvMemory"]),
        "a claim without its name": ({"model": {"source": "pvc"}}, ["model.pvc.claimName"]),
        "a host path without its folder": ({"model": {"source": "hostPath"}}, ["model.hostPath.path"]),
        "an unknown source": ({"model": {"source": "git"}}, ["source"]),
        "a branch as revision": ({"model": {"source": "huggingFace", "huggingFace": {"repository": "o/m", "revision": "main"}}}, ["revision"]),
        "a repository without checksums": ({"model": {"source": "huggingFace", "huggingFace": {"repository": "o/m", "revision": "a" * 40}}}, ["model.huggingFace.files"]),
        "a file that is not pulled": ({"model": {**HUB, "file": "m.gguf"}}, ["model.file", "model.huggingFace.files"]),
        "a file that is not named": ({"model": {**HUB, "huggingFace": {**HUB["huggingFace"], "files": {"m.gguf": SUM}}}}, ["model.file (m.gguf)"]),
        "a part of a file": ({"model": {"file": "m-00001-of-00002.gguf"}}, ["model.file", "merge"]),
        "a file outside its folder": ({"model": {"file": "../m.gguf"}}, ["model.file"]),
        "a file of another kind": ({"model": {"file": "model.safetensors"}}, ["model.file"]),
        "a checksum cut short": ({"model": {"source": "s3", "s3": {"url": "https://x/y", "files": {"config.json": "abc"}}}}, ["config.json"]),
        "a model split over more GPUs than there are": ({"decode": {"gpus": 2, "tensorParallel": 4}}, ["decode.tensorParallel", "decode.gpus"]),
        "a tensor parallel of three": ({"decode": {"gpus": 4, "tensorParallel": 3}}, ["tensorParallel"]),
        "claims of who knows what": ({"decode": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}}, ["decode.resourceClaims", "set decode.backend to cuda", "or to cpu"]),
        "a node's claims of who knows what": ({"node": {"enabled": True, "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}}, ["node.resourceClaims", "node.backend"]),
        "another model's claims of who knows what": ({"models": {"more": {"model": {**HUB, "name": "more"}, "decode": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}}}}, ["models.more: decode.resourceClaims", "decode.backend"]),
        "GPUs that stand idle": ({"decode": {"gpus": 1, "backend": "cpu"}}, ["decode.backend is cpu", "decode.gpus is 1"]),
        "a backend without GPUs": ({"prefill": {"backend": "cuda"}}, ["prefill.backend is cuda", "prefill.gpus", "prefill.resourceClaims"]),
        "a backend that there is not": ({"decode": {"backend": "rocm"}}, ["decode.backend"]),
        "a router's backend": ({"router": {"backend": "cuda"}}, ["backend"]),
        "the CPU image for GPUs by claims": ({"decode": {**CLAIMED, "image": {"tag": "0.1.0"}}}, ["decode.backend is cuda", "Dockerfile.cuda", "decode.image.tag"]),
        "KV that GPUs by claims can't compute with": ({"kv": {"valueDtype": "i4"}, "prefill": CLAIMED, "decode": CLAIMED}, ["kv.valueDtype", "prefill.backend is cuda"]),
        "KV that a pool beside claims can't compute with": ({"kv": {"valueDtype": "f8"}, "prefill": CLAIMED, "decode": {**CLAIMED, "backend": "cpu"}}, ["kv.valueDtype", "decode.backend is cpu"]),
        "a claim of nothing": ({"decode": {"backend": "cuda", "resourceClaims": [{"name": "gpu"}]}}, ["decode.resourceClaims.0"]),
        "a claim in the form of Kubernetes 1.30": ({"decode": {"backend": "cuda", "resourceClaims": [{"name": "gpu", "source": {"resourceClaimTemplateName": "one"}}]}}, ["decode.resourceClaims.0", "source"]),
        "a claim twice": ({"decode": {**CLAIMED, "resourceClaims": 2 * CLAIMED["resourceClaims"]}}, ["decode.resourceClaims", "two claims gpu"]),
        "a draft on CPUs by a worker on GPUs": ({"decode": {"gpus": 1, "selfDraft": True}}, ["decode.selfDraft", "decode.gpus is 1", "decode.draftModel"]),
        "nccl on CPUs without a prefill pool": ({"prefill": {"enabled": False}, "link": {"name": "nccl"}}, ["link.name", "decode.gpus"]),
        "nccl without GPUs": ({"link": {"name": "nccl"}}, ["link.name", "decode.gpus"]),
        "a floor without a worker to test with": ({"prefill": {"enabled": False}, "link": {"floorGbps": 1}}, ["link.floorGbps", "prefill.enabled"]),
        "a transport of NCCL's on the host link": ({"link": {"transport": "rdma"}}, ["link.transport", "link.name"]),
        "a transport without a worker to test with": ({"node": {"enabled": True, "gpus": 1, "prefillWorkers": 0}, "link": {"name": "nccl", "transport": "p2p"}}, ["link.transport", "node.prefillWorkers"]),
        "nccl on a node without GPUs": ({"node": {"enabled": True}, "link": {"name": "nccl"}}, ["link.name", "node.gpus"]),
        "nccl on slices of a GPU": ({**each({"gpus": 1}), "link": {"name": "nccl"}, "decode": {"gpus": 1, "gpuResource": "nvidia.com/mig-3g.40gb"}}, ["decode.gpuResource", "slices of one GPU", "host"]),
        "nccl on shared GPUs": ({**each({"gpus": 1}), "link": {"name": "nccl"}, "prefill": {"gpus": 1, "gpuResource": "nvidia.com/gpu.shared"}}, ["prefill.gpuResource", "no two workers on one GPU"]),
        "more workers than GPUs": ({"node": {"enabled": True, "gpus": 8, "prefillWorkers": 3, "decodeWorkers": 6}}, ["node.prefillWorkers", "take 9 GPUs", "node.gpus is 8"]),
        "more ranks than GPUs": ({"node": {"enabled": True, "gpus": 8, "prefillWorkers": 1, "decodeWorkers": 4, "tensorParallel": 2}}, ["take 10 GPUs"]),
        "a node without decode workers": ({"node": {"enabled": True, "decodeWorkers": 0}}, ["decodeWorkers"]),
        "a node's floor without a worker to test with": ({"node": {"enabled": True, "prefillWorkers": 0}, "link": {"floorGbps": 1}}, ["link.floorGbps", "node.prefillWorkers"]),
        "the node's network under a policy": ({"decode": {"hostNetwork": True}}, ["decode.hostNetwork", "networkPolicy.enabled"]),
        "a port range in the node's network": ({**each({"gpus": 1}), "decode": {"gpus": 1, "hostNetwork": True}, "link": {"name": "nccl", "portRange": "50000-50010"}, "networkPolicy": {"enabled": False}}, ["link.portRange", "decode.hostNetwork"]),
        "a port range upside down": ({"link": {"portRange": "50010-50000"}}, ["link.portRange"]),
        "a port range over the workers' own": ({"link": {"portRange": "8000-9999"}}, ["link.portRange", "10000"]),
        "a port range without end": ({"link": {"portRange": "50000-"}}, ["portRange"]),
        "a domain that no pod has": ({"link": {"domain": "spec.hostname"}}, ["domain"]),
        "a setting of NCCL as a number": ({"link": {"env": {"NCCL_IB_TC": 106}}}, ["NCCL_IB_TC"]),
        "a node's KV over its memory": ({"node": {"enabled": True, "decodeWorkers": 3, "kvMemory": "4GiB", "resources": {"limits": {"memory": "16Gi"}}}}, ["node.kvMemory"]),
        "a capability that nobody gets": ({"decode": {"rdma": {"ipcLock": True}}}, ["ipcLock"]),
        "an unknown link": ({"link": {"name": "rdma"}}, ["link"]),
        "a grace shorter than an answer": ({"router": {"terminationGracePeriodSeconds": 30}}, ["router.terminationGracePeriodSeconds", "cut short"]),
        "least over most": ({"prefill": {"autoscaling": {"enabled": True, "minReplicas": 9, "maxReplicas": 2}}}, ["prefill.autoscaling.minReplicas"]),
        "two budgets": ({"decode": {"pdb": {"minAvailable": 1}}}, ["decode.pdb"]),
        "TLS without certificates": ({"tls": {"enabled": True}}, ["tls.existingSecret", "tls.certManager"]),
        "cert-manager without an issuer": ({"tls": {"enabled": True, "certManager": {"enabled": True}}}, ["tls.certManager.issuerRef"]),
        "a certificate that is not used": ({"tls": {"certManager": {"enabled": True, "issuerRef": {"name": "i"}}}}, ["tls.enabled"]),
        "a rollout that can't move": ({"decode": {"strategy": {"maxSurge": 0, "maxUnavailable": 0}}}, ["decode.strategy"]),
        "tenants without a key to test with": ({"auth": {"tenants": {"existingSecret": "t"}}}, ["auth.testKey.existingSecret"]),
        "an unknown policy": ({"router": {"policy": "best"}}, ["policy"]),
        "a flag without dashes": ({"decode": {"extraArgs": ["chunk-tokens=64"]}}, ["extraArgs"]),
        "a model without a name": ({"model": {"name": ""}}, ["name"]),
        "KV that CPUs can't compute with": ({"kv": {"keyDtype": "f8"}}, ["kv.keyDtype", "prefill.gpus"]),
        "KV that GPUs can't compute with": ({"kv": {"valueDtype": "i4"}, **each({"gpus": 1})}, ["kv.valueDtype", "prefill.gpus"]),
        "KV as float16 without GPUs": ({"kv": {"valueDtype": "f16"}}, ["kv.valueDtype", "prefill.gpus"]),
        "a flag twice": ({"decode": {"extraArgs": ["--backend=cuda"]}}, ["decode.extraArgs", "--backend"]),
        "KV as large as the pod": ({"decode": {"kvMemory": "4GiB", "resources": {"limits": {"memory": "4Gi"}}}}, ["decode.kvMemory", "decode.resources.limits.memory"]),
        "KV larger than the pod": ({"prefill": {"kvMemory": "1TiB", "resources": {"limits": {"memory": "900G"}}}}, ["prefill.kvMemory"]),
        "a ledger in no store": ({"billing": {"ledger": {"inStore": True}}}, ["billing.ledger.inStore", "store.url"]),
        "two ledgers": ({"store": {"url": "redis://s"}, "billing": {"ledger": {"inStore": True, "volume": {"emptyDir": {}}}}}, ["billing.ledger"]),
        "a store of another kind": ({"store": {"url": "http://s"}}, ["store.url"]),
        "a password of no store": ({"store": {"password": {"existingSecret": "s"}}}, ["store.password"]),
        "a route to no Gateway": ({"route": {"enabled": True}}, ["route.parentRefs"]),
        "a route to no gateway": ({"gateway": {"enabled": False, "route": {"enabled": True, "parentRefs": [{"name": "g"}]}}}, ["gateway.route.enabled", "gateway.enabled"]),
        "a gateway's route to no Gateway": ({"gateway": {"enabled": True, "route": {"enabled": True}}}, ["gateway.route.parentRefs"]),
        "a gateway's flag twice": ({"gateway": {"enabled": True, "extraArgs": ["--listen=[::]:1"]}}, ["gateway.extraArgs", "--listen"]),
        "a gateway's grace shorter than an answer": ({"gateway": {"enabled": True, "terminationGracePeriodSeconds": 30}}, ["gateway.terminationGracePeriodSeconds", "cut short"]),
        "a gateway with a model": ({"gateway": {"kvMemory": "1GiB"}}, ["kvMemory"]),
        "a route of an unknown kind": ({"route": {"enabled": True, "kind": "TLSRoute", "parentRefs": [{"name": "g"}]}}, ["kind"]),
        "an init container without an image": ({"decode": {"extraInitContainers": [{"name": "a"}]}}, ["image"]),
    }

    def test_near_misses_are_not_refused(self):
        for values in (
            {"tls": {"enabled": True, "existingSecret": "t"}, "gateway": {"service": {"type": "LoadBalancer"}, "tls": {"existingSecret": "g"}}, "networkPolicy": {"clients": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}},
            {"decode": {"replicas": 2, "pdb": {"minAvailable": 1, "maxUnavailable": None}}},
            {"commonLabels": {"team": "a"}, "decode": {"podLabels": {"pool": "b"}, "extraEnv": [{"name": "A", "value": "1"}]}},
            {"tls": {"enabled": True, "existingSecret": "t"}},
            {"kv": {"keyDtype": "i8", "valueDtype": "f8"}, **each({"gpus": 1})},
            {"kv": {"keyDtype": "f16", "valueDtype": "f16"}, **each({"gpus": 1})},
            {"kv": {"keyDtype": "i8", "valueDtype": "i4"}},
            {"model": {**HUB, "huggingFace": {**HUB["huggingFace"], "files": {"config.json": SUM, "draft.gguf": SUM}}}},
            {"store": {"url": "redis://s:6379"}, "billing": {"ledger": {"inStore": True}}},
            {"decode": {"kvMemory": "4GiB", "resources": {"limits": {"memory": "5Gi"}}}},
            {"decode": {"kvMemory": "40GiB", "gpus": 1, "resources": {"limits": {"memory": "16Gi"}}}},
            {"decode": {"extraArgs": ["--chunk-tokens=64"]}},
            {"kv": {"keyDtype": "i8"}, "prefill": {"enabled": False}, "decode": {"gpus": 1}},
        ):
            with self.subTest(values=values):
                self.assertTrue(Release(values).objects)

    def test_each_is_refused_in_words(self):
        for what, (values, words) in self.CASES.items():
            with self.subTest(what):
                with self.assertRaises(Refused) as refused:
                    Release(values)
                for word in words:
                    self.assertIn(word, str(refused.exception).replace("/", "."))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
