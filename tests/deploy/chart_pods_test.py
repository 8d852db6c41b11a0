#!/usr/bin/env python3
"""The chart's pods: what every role's have, by its own keys and by common ones."""
import pathlib
import shutil
import sys
import tempfile
import unittest

from chart import CHART, HUB, ROLES, SUM, Release, each


class Pods(unittest.TestCase):
    def test_locked_down(self):
        for preset, role in [("node-8gpu", "node"), *(("sockets", role) for role in ROLES)]:
            release = Release(preset=preset)
            pod, container = release.pod(role), release.container(role)
            self.assertTrue(pod["securityContext"]["runAsNonRoot"])
            self.assertFalse(pod["automountServiceAccountToken"])
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
            self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"])
            self.assertEqual(container["securityContext"]["capabilities"]["drop"], ["ALL"])

    def test_probes_speak_grpc(self):
        for role in ROLES:
            container = Release().container(role)
            ports = {port["name"]: port["containerPort"] for port in container["ports"]}
            self.assertEqual(container["startupProbe"]["grpc"], {"port": ports["health"], "service": "live"})
            self.assertEqual(container["livenessProbe"]["grpc"], {"port": ports["health"], "service": "live"})
            self.assertEqual(container["readinessProbe"]["grpc"], {"port": ports["health"]})
            self.assertTrue(Release().flags(role)["--health"].endswith(f":{ports['health']}"))

    def test_grace_covers_the_longest_generation(self):
        release = Release({"longestGenerationSeconds": 1000, "decode": {"preStopSeconds": 7}})
        self.assertEqual(release.pod("decode")["terminationGracePeriodSeconds"], 1022)
        self.assertEqual(release.flags("decode")["--drain-seconds"], "1000")
        self.assertEqual(release.flags("router")["--drain-seconds"], "1000")
        self.assertEqual(release.container("decode")["lifecycle"]["preStop"]["sleep"]["seconds"], 7)

    def test_no_pre_stop(self):
        self.assertNotIn("lifecycle", Release({"decode": {"preStopSeconds": 0}}).container("decode"))

    def test_grace_can_be_set(self):
        release = Release({"decode": {"terminationGracePeriodSeconds": 900}})
        self.assertEqual(release.pod("decode")["terminationGracePeriodSeconds"], 900)

    def test_scheduling_keys_of_every_role(self):
        keys = {
            "nodeSelector": {"a": "b"},
            "tolerations": [{"key": "x", "operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "high",
            "runtimeClassName": "nvidia",
            "schedulerName": "packer",
        }
        release = Release(each(keys))
        for role in ROLES:
            for key, value in keys.items():
                self.assertEqual(release.pod(role)[key], value)
                self.assertNotIn(key, Release().pod(role))

    def test_spread_selects_its_own_role(self):
        spread = Release().pod("decode")["topologySpreadConstraints"][0]
        self.assertEqual(spread["labelSelector"]["matchLabels"]["app.kubernetes.io/component"], "decode")
        own = {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"a": "b"}}}
        spread = Release({"decode": {"topologySpreadConstraints": [own]}}).pod("decode")["topologySpreadConstraints"]
        self.assertEqual(spread[0]["labelSelector"]["matchLabels"]["a"], "b")

    def test_extras_of_every_role(self):
        extras = {
            "extraEnv": [{"name": "A", "value": "1"}],
            "extraArgs": ["--chunk-tokens=64"],
            "extraVolumes": [{"name": "v", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
            "podAnnotations": {"k": "v"},
            "podLabels": {"l": "v"},
        }
        release = Release(each(extras))
        for role in ROLES:
            container = release.container(role)
            self.assertIn(extras["extraEnv"][0], container["env"])
            self.assertIn("--chunk-tokens=64", container["args"])
            self.assertIn(extras["extraVolumes"][0], release.pod(role)["volumes"])
            self.assertIn(extras["extraVolumeMounts"][0], container["volumeMounts"])
            meta = release.one("Deployment", f"r-baton-{role}")["spec"]["template"]["metadata"]
            self.assertEqual(meta["annotations"]["k"], "v")
            self.assertEqual(meta["labels"]["l"], "v")

    def test_own_init_containers_come_after_the_download(self):
        own = {"name": "warm", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
        for role in ROLES:
            values = {role: {"extraInitContainers": [own], "extraVolumes": [{"name": "v", "emptyDir": {}}]}}
            self.assertEqual(Release(values).pod(role)["initContainers"], [own])
            self.assertEqual([one["name"] for one in Release({**values, "model": HUB}).pod(role)["initContainers"]], ["model", "warm"])

    def test_images(self):
        digest = "sha256:" + SUM
        release = Release({"image": {"repository": "x/baton", "tag": "1"}, "prefill": {"image": {"tag": "2"}}, "decode": {"image": {"repository": "y/d", "digest": digest}}})
        self.assertEqual(release.container("router")["image"], "x/baton:1")
        self.assertEqual(release.container("prefill")["image"], "x/baton:2")
        self.assertEqual(release.container("decode")["image"], f"y/d@{digest}")
        release = Release({"image": {"repository": "x/baton", "digest": digest}, "prefill": {"image": {"tag": "2"}}})
        self.assertEqual(release.container("router")["image"], f"x/baton@{digest}")
        self.assertEqual(release.container("prefill")["image"], "x/baton:2", "a role's tag wins over the common digest")
        self.assertTrue(Release().container("router")["image"].endswith(":0.1.0"))

    def test_pull_secrets(self):
        for values in ({"imagePullSecrets": ["s"]}, {"imagePullSecrets": [{"name": "s"}]}, {"global": {"imagePullSecrets": [{"name": "s"}]}}):
            release = Release({**values, "gateway": {"enabled": True}})
            for pod in [one["spec"]["template"]["spec"] for one in release.workloads()] + [release.one("Pod", "r-baton-test")["spec"]]:
                self.assertEqual(pod["imagePullSecrets"], [{"name": "s"}], values)
        both = Release({"imagePullSecrets": ["own"], "global": {"imagePullSecrets": ["parent"], "imageRegistry": "registry.example/"}})
        self.assertEqual(both.pod("decode")["imagePullSecrets"], [{"name": "own"}, {"name": "parent"}])
        self.assertEqual(both.container("decode")["image"], "registry.example/baton:0.1.0")

    def test_a_download_behind_a_proxy_under_a_quota(self):
        download = {"extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}], "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
        release = Release({"model": {"source": "s3", "s3": {"url": "https://s3.example/b", "files": {"config.json": "1" * 64}}, "download": download}})
        for role in ROLES:
            one = release.pod(role)["initContainers"][0]
            self.assertIn({"name": "HTTPS_PROXY", "value": "http://proxy:3128"}, one["env"])
            self.assertIn({"name": "ca", "mountPath": "/ca"}, one["volumeMounts"])
            self.assertEqual(one["resources"]["limits"], {"cpu": "1", "memory": "1Gi"})

    def test_gpus(self):
        release = Release({"decode": {"gpus": 4, "tensorParallel": 4, "gpuResource": "nvidia.com/gpu.of-ours", "resources": {"limits": {"memory": "9Gi"}}}})
        self.assertEqual(release.container("decode")["resources"]["limits"], {"nvidia.com/gpu.of-ours": 4, "memory": "9Gi"})
        self.assertEqual(release.flags("decode")["--backend"], "cuda")
        self.assertEqual(release.flags("decode")["--tp"], "4")
        self.assertEqual(release.flags("prefill")["--backend"], "cpu")
        self.assertNotIn("--tp", release.flags("prefill"))

    def test_rdma(self):
        release = Release({"decode": {"rdma": {"enabled": True}}})
        self.assertNotIn("add", release.container("decode")["securityContext"]["capabilities"])
        self.assertEqual(release.container("decode")["resources"]["limits"]["rdma/hca_shared_devices_a"], 1)

    def test_memory_is_locked_by_root_alone(self):
        """The capability reaches no other user: Kubernetes gives none that outlives the change of user."""
        release = Release({"decode": {"rdma": {"enabled": True, "runAsRoot": True}}})
        self.assertEqual(release.container("decode")["securityContext"]["capabilities"], {"drop": ["ALL"], "add": ["IPC_LOCK"]})
        self.assertEqual((release.pod("decode")["securityContext"]["runAsUser"], release.pod("decode")["securityContext"]["runAsNonRoot"]), (0, False))
        self.assertEqual(release.pod("prefill")["securityContext"]["runAsUser"], 65532)

    def test_network_of_the_node(self):
        release = Release({"decode": {"hostNetwork": True}, "networkPolicy": {"enabled": False}})
        self.assertEqual((release.pod("decode")["hostNetwork"], release.pod("decode")["dnsPolicy"]), (True, "ClusterFirstWithHostNet"))
        self.assertNotIn("hostNetwork", release.pod("prefill"))

    def test_devices_by_claims_and_large_pages(self):
        claims = [{"name": "nic", "resourceClaimTemplateName": "nic-beside-gpu"}]
        release = Release({"decode": {"backend": "cpu", "resourceClaims": claims, "hugepages2Mi": "5Gi"}})
        self.assertEqual(release.pod("decode")["resourceClaims"], claims)
        self.assertEqual(release.container("decode")["resources"]["claims"], [{"name": "nic"}])
        self.assertEqual(release.container("decode")["resources"]["limits"], {"hugepages-2Mi": "5Gi"})
        self.assertEqual((release.flags("decode")["--backend"], release.container("decode")["image"]), ("cpu", "baton:0.1.0"))

    def test_gpus_by_claims_alone(self):
        claims = [{"name": "gpus", "resourceClaimTemplateName": "two-gpus"}, {"name": "nic", "resourceClaimName": "nic"}]
        own = {"backend": "cuda", "tensorParallel": 2, "resourceClaims": claims}
        model = {"name": "more", "source": "hostPath", "hostPath": {"path": "/m"}}
        for role, values in (
            ("decode", {"decode": own}),
            ("prefill", {"prefill": own}),
            ("node", {"node": {"enabled": True, **own}}),
            ("decode-more", {"models": {"more": {"model": model, "decode": own}}}),
        ):
            release = Release(values)
            container = release.container(role)
            self.assertEqual(release.pod(role)["resourceClaims"], claims, role)
            self.assertEqual(container["resources"], {"claims": [{"name": "gpus"}, {"name": "nic"}], "requests": {"cpu": "2", "memory": "2Gi"}}, role)
            self.assertEqual((release.flags(role)["--backend"], release.flags(role)["--tp"], container["image"]), ("cuda", "2", "baton:0.1.0-cuda"), role)
        self.assertEqual((Release({"decode": own}).flags("prefill")["--backend"], Release({"decode": own}).container("router")["image"]), ("cpu", "baton:0.1.0"))

    def test_whatever_goes_by_gpus_goes_by_claims_too(self):
        own = {"backend": "cuda", "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}
        both = {"prefill": own, "decode": own}
        self.assertEqual(Release({**both, "link": {"name": "nccl"}, "kv": {"keyDtype": "f8"}}).flags("decode")["--key-dtype"], "f8")
        self.assertNotIn("--key-dtype", Release(both).flags("decode"), "the model's, as with GPUs on both sides")
        self.assertEqual(Release({"decode": own}).flags("prefill")["--key-dtype"], "bf16", "as with GPUs on one side")
        self.assertTrue(Release({"decode": {**own, "kvMemory": "40GiB", "resources": {"limits": {"memory": "16Gi"}}}}).objects, "KV is in the GPU's memory")
        node = Release({"node": {"enabled": True, "prefillWorkers": 2, "decodeWorkers": 3, "tensorParallel": 2, **own}, "link": {"name": "nccl"}}).flags("node")
        self.assertEqual((node["--prefill-devices"], node["--decode-devices"]), ("0-3", "4-9"))

    def test_notes_say_what_the_chart_can_not_see(self):
        with tempfile.TemporaryDirectory() as folder:
            chart = pathlib.Path(folder) / "baton"
            shutil.copytree(CHART, chart)
            shutil.move(chart / "templates" / "NOTES.txt", chart / "files")
            shown = '{apiVersion: v1, kind: ConfigMap, metadata: {name: notes}, data: {text: {{ tpl (.Files.Get "files/NOTES.txt") . | toJson }}}}'
            (chart / "templates" / "notes.yaml").write_text(shown)
            own = {"backend": "cuda", "tensorParallel": 2, "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "some"}]}
            shm = {"shm": {"enabled": True}}
            for values, wanted in (
                ({}, []),
                ({"decode": {"gpus": 2, "tensorParallel": 2, **shm}}, []),
                ({"decode": {"gpus": 2, "tensorParallel": 2}}, ["decode.shm.enabled is off"]),
                ({"decode": {**own, **shm}}, ["decode pods have the GPUs that their resourceClaims bring, and need 2 each"]),
                ({"node": {"enabled": True, "decodeWorkers": 3, **own}}, ["node pods have the GPUs that their resourceClaims bring, and need 8 each"]),
                ({"node": {"enabled": True, "gpus": 2, "shm": {"enabled": False}}, "link": {"name": "nccl"}}, ["node.shm.enabled is off"]),
            ):
                text = Release(values, chart=chart).one("ConfigMap", "notes")["data"]["text"]
                found = [line for line in text.split("\n") if "resourceClaims" in line or "shm" in line]
                self.assertEqual(len(found), len(wanted), (values, found))
                for line, words in zip(found, wanted):
                    self.assertIn(words, line)

    def test_a_backend_that_is_said(self):
        for own, wanted in (({"gpus": 1}, "cuda"), ({"gpus": 1, "backend": "cuda"}, "cuda"), ({"backend": "cpu"}, "cpu"), ({"backend": "auto"}, "cpu"), ({"backend": None}, "cpu")):
            self.assertEqual(Release({"decode": own}).flags("decode")["--backend"], wanted, own)

    def test_where_the_link_is_fast(self):
        for domain in ("spec.nodeName", "metadata.labels['nvidia.com/gpu.clique']"):
            release = Release({"link": {"domain": domain}})
            for role in ("prefill", "decode"):
                self.assertEqual(release.flags(role)["--link-domain"], "$(LINK_DOMAIN)")
                self.assertIn({"name": "LINK_DOMAIN", "valueFrom": {"fieldRef": {"fieldPath": domain}}}, release.container(role)["env"])
            self.assertNotIn("LINK_DOMAIN", str(release.pod("router")))
        self.assertNotIn("LINK_DOMAIN", str(Release({"link": {"domain": ""}}).pod("decode")))

    def test_wanted_transport(self):
        nccl = {**each({"gpus": 1}), "link": {"name": "nccl", "transport": "rdma"}}
        flags = Release(nccl).flags("decode")
        self.assertEqual((flags["--link-transport"], flags["--link-peers"]), ("rdma", "dns:///r-baton-prefill.ns.svc:8470"))
        self.assertNotIn("--link-transport", Release(nccl).flags("prefill"))
        flags = Release({"node": {"enabled": True, "gpus": 2}, "link": {"name": "nccl", "transport": "p2p"}}).flags("node")
        self.assertEqual((flags["--decode-flag=--link-transport"], flags["--decode-flag=--link-peers"]), ("p2p", "127.0.0.1:8480"))
        self.assertNotIn("--link-transport", str(Release({**each({"gpus": 1}), "link": {"name": "nccl", "floorGbps": 1}}).container("decode")))

    def test_settings_of_nccl(self):
        release = Release({**each({"gpus": 1}), "link": {"name": "nccl", "pairs": 40, "env": {"NCCL_IB_HCA": "mlx5", "NCCL_RAS_ENABLE": "1"}}})
        for role in ("prefill", "decode"):
            env = {one["name"]: one.get("value") for one in release.container(role)["env"]}
            self.assertEqual((env["NCCL_IB_HCA"], env["NCCL_RAS_ENABLE"]), ("mlx5", "1"))
            self.assertEqual(release.flags(role)["--link-pairs"], "40")
        self.assertNotIn("NCCL", str(release.pod("router")))
        self.assertNotIn("NCCL", str(Release({"link": {"env": {"NCCL_IB_HCA": "mlx5"}}}).pod("decode")), "of the nccl link alone")

    def test_shared_memory(self):
        release = Release({"decode": {"shm": {"enabled": True, "sizeLimit": "3Gi"}}})
        self.assertIn({"name": "shm", "mountPath": "/dev/shm"}, release.container("decode")["volumeMounts"])
        self.assertIn({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "3Gi"}}, release.pod("decode")["volumes"])
        self.assertNotIn("/dev/shm", str(Release().pod("decode")))

    def test_worker_flags(self):
        release = Release({"decode": {"kvMemory": "3GiB", "threads": 5, "chunkTokens": 64, "tokenBudget": 128, "maxRunning": 9, "localPrefillTokens": 0, "speculation": "ngram,grammar", "logLevel": "debug"}})
        flags = release.flags("decode")
        for flag, value in {"--kv-memory": "3GiB", "--threads": "5", "--chunk-tokens": "64", "--token-budget": "128", "--max-running": "9", "--local-prefill-tokens": "0", "--speculation": "ngram,grammar", "--log-level": "debug"}.items():
            self.assertEqual(flags[flag], value)
        self.assertEqual(Release({"decode": {"speculation": "off"}}).flags("decode")["--speculation"], "off")
        self.assertIn("--self-draft", Release({"decode": {"selfDraft": True}}).container("decode")["args"])
        self.assertNotIn("--chunk-tokens", Release().flags("decode"))
        self.assertEqual(flags["--worker-id"], "$(POD_NAME)")

    def test_kv_disk(self):
        release = Release({"decode": {"kvDisk": {"size": "40GiB"}}, "prefill": {"kvDisk": {"size": "1TiB", "hostPath": "/mnt/nvme/kv"}}})
        self.assertEqual((release.flags("decode")["--kv-disk"], release.flags("decode")["--kv-disk-size"]), ("/var/lib/baton/kv/decode", "40GiB"))
        for role, volume in (("decode", {"emptyDir": {}}), ("prefill", {"hostPath": {"path": "/mnt/nvme/kv", "type": "Directory"}})):
            self.assertIn({"name": "kv-disk", **volume}, release.pod(role)["volumes"])
            self.assertIn({"name": "kv-disk", "mountPath": "/var/lib/baton/kv"}, release.container(role)["volumeMounts"])
        self.assertNotIn("--kv-disk-key", release.flags("decode"))
        key = {"existingSecret": "disk-key"}
        for role in ("decode", "node"):
            disk = {"kvDisk": {"size": "40GiB", "key": key}}
            encrypted = Release({role: disk if role == "decode" else {**{"enabled": True, "prefillWorkers": 2, "decodeWorkers": 3}, **disk}})
            self.assertEqual(encrypted.flags(role)["--kv-disk-key"], "/etc/baton/kv-disk/key")
            self.assertIn({"name": "kv-disk-key", "secret": {"secretName": "disk-key", "defaultMode": 0o440}}, encrypted.pod(role)["volumes"])
            self.assertIn({"name": "kv-disk-key", "mountPath": "/etc/baton/kv-disk", "readOnly": True}, encrypted.container(role)["volumeMounts"])
        self.assertNotIn("kv-disk", str(Release({"decode": {"kvDisk": {"key": key}}}).pod("decode")))
        self.assertNotIn("kv-disk", str(Release().pod("decode")))
        self.assertNotIn("kv-disk", str(release.pod("router")))

    def test_kv_shared(self):
        """All workers of a release mount one claim; the key of each pool encrypts what it writes there, with or without a disk of its own."""
        shared = {"kvShared": {"claimName": "fleet-kv", "size": "2TiB"}}
        release = Release(shared)
        for role in ("decode", "prefill"):
            flags = release.flags(role)
            self.assertEqual((flags["--kv-shared"], flags["--kv-shared-size"]), ("/var/lib/baton/shared/baton-kv", "2TiB"))
            self.assertFalse({"--kv-disk", "--kv-disk-key"} & set(flags))
            self.assertIn({"name": "kv-shared", "persistentVolumeClaim": {"claimName": "fleet-kv"}}, release.pod(role)["volumes"])
            self.assertIn({"name": "kv-shared", "mountPath": "/var/lib/baton/shared"}, release.container(role)["volumeMounts"])
        self.assertNotIn("kv-shared", str(release.pod("router")))
        self.assertNotIn("kv-shared", str(Release().pod("decode")))
        key = {"kvDisk": {"key": {"existingSecret": "disk-key"}}}
        for role, values in (("decode", {"decode": key}), ("node", {"node": {"enabled": True, "prefillWorkers": 2, "decodeWorkers": 3, **key}})):
            keyed = Release({**shared, **values})
            self.assertEqual(keyed.flags(role)["--kv-disk-key"], "/etc/baton/kv-disk/key")
            self.assertEqual(keyed.flags(role)["--kv-shared"], "/var/lib/baton/shared/baton-kv")
            self.assertIn({"name": "kv-disk-key", "secret": {"secretName": "disk-key", "defaultMode": 0o440}}, keyed.pod(role)["volumes"])
            self.assertIn({"name": "kv-disk-key", "mountPath": "/etc/baton/kv-disk", "readOnly": True}, keyed.container(role)["volumeMounts"])
        self.assertNotIn("kv-disk", str(Release({**shared, "decode": key}).pod("prefill")))

    def test_kv_precision(self):
        """On GPUs alone the workers choose, by the model: f16 for models in it. Where one pool has none they have to be told."""
        cases = (
            ({}, (None, None)),
            (each({"gpus": 1}), (None, None)),
            ({"decode": {"gpus": 1}}, ("bf16", "bf16")),
            ({"decode": {"gpus": 1}, "prefill": {"enabled": False}}, (None, None)),
            ({**each({"gpus": 1}), "kv": {"valueDtype": "i8"}}, (None, "i8")),
            ({"kv": {"keyDtype": "bf16"}}, ("bf16", None)),
            ({"kv": {"keyDtype": "i8", "valueDtype": "i4"}}, ("i8", "i4")),
        )
        for values, wanted in cases:
            for role in ("prefill", "decode") if values.get("prefill", {}).get("enabled", True) else ("decode",):
                flags = Release(values).flags(role)
                self.assertEqual((flags.get("--key-dtype"), flags.get("--value-dtype")), wanted, (role, values))

    def test_link(self):
        release = Release({**each({"gpus": 1}), "link": {"name": "nccl", "floorGbps": 7.5, "timeoutSeconds": 3}})
        for role in ("prefill", "decode"):
            self.assertEqual((release.flags(role)["--link"], release.flags(role)["--link-timeout"]), ("nccl", "3"), role)
        self.assertEqual(release.flags("decode")["--link-peers"], "dns:///r-baton-prefill.ns.svc:8470")
        self.assertEqual(release.flags("decode")["--link-floor-gbps"], "7.5")
        self.assertFalse({"--link-peers", "--link-floor-gbps"} & set(release.flags("prefill")))
        self.assertNotIn("--link", release.flags("router"))
        plain = Release().flags("decode")
        self.assertEqual(plain["--link"], "host")
        self.assertFalse({"--link-timeout", "--link-peers", "--link-floor-gbps"} & set(plain))

    def test_router_flags(self):
        flags = Release({"router": {"policy": "least_loaded", "queueRequests": 5, "queueSeconds": 2.5, "workerConcurrency": 3, "tokenizerThreads": 7}}).flags("router")
        for flag, value in {"--policy": "least_loaded", "--queue-requests": "5", "--queue-seconds": "2.5", "--worker-concurrency": "3", "--tokenizer-threads": "7"}.items():
            self.assertEqual(flags[flag], value)
        self.assertNotIn("--policy", Release().flags("router"))
        self.assertEqual(Release().flags("router")["--max-connection-age"], "1800")

    def test_routers_tell_workers_the_targets(self):
        release = Release({"slo": {"ttftSeconds": 0.75, "tpotSeconds": 0.025, "tailShare": 0.75}})
        self.assertEqual(release.flags("router")["--slo-ttft"], "0.75")
        self.assertEqual(release.flags("router")["--slo-tpot"], "0.025")
        self.assertEqual(release.flags("router")["--tail-share"], "0.75")
        for role in ("prefill", "decode"):
            for flag in ("--slo-ttft", "--slo-tpot", "--tail-share"):
                self.assertNotIn(flag, release.flags(role))

    def test_autoscaling_aims_at_the_slo(self):
        slo = {"slo": {"ttftSeconds": 0.75, "tpotSeconds": 0.025}}
        for kind in ("hpa", "keda"):
            for own, wanted in (({}, ("0.75", "0.025")), ({"targetTtftSeconds": 0.5, "targetTpotSeconds": 0.01}, ("0.5", "0.01"))):
                on = lambda key: {"autoscaling": {"enabled": True, "kind": kind, **{k: v for k, v in own.items() if k == key}}}
                release = Release({**slo, "prefill": on("targetTtftSeconds"), "decode": on("targetTpotSeconds")})
                if kind == "hpa":
                    found = [release.one("HorizontalPodAutoscaler", f"r-baton-{role}")["spec"]["metrics"][1]["external"]["target"]["value"] for role in ("prefill", "decode")]
                else:
                    found = [release.one("ScaledObject", f"r-baton-{role}")["spec"]["triggers"][1]["metadata"]["threshold"] for role in ("prefill", "decode")]
                self.assertEqual(tuple(found), wanted, kind)

    def test_rolling_update(self):
        release = Release({"decode": {"strategy": {"maxSurge": "25%", "maxUnavailable": 0}}})
        self.assertEqual(release.one("Deployment", "r-baton-decode")["spec"]["strategy"]["rollingUpdate"], {"maxSurge": "25%", "maxUnavailable": 0})

    def test_a_new_pod_comes_first_where_there_is_room_for_one_more(self):
        first, last = {"maxSurge": 1, "maxUnavailable": 0}, {"maxSurge": 0, "maxUnavailable": 1}
        key = {"kvDisk": {"size": "1GiB", "hostPath": "/srv/kv"}}
        for values, wanted in (
            ({}, first),
            ({"gpus": 1, "threads": 0}, last),
            ({"hostNetwork": True}, last),
            (key, last),
            ({**key, "strategy": {"maxUnavailable": 0}}, first),
            ({"strategy": {"maxSurge": 0}}, last),
            ({"gpus": 1, "strategy": {"maxUnavailable": "0%"}}, {"maxSurge": 1, "maxUnavailable": "0%"}),
            ({"strategy": {"maxSurge": "0%"}}, {"maxSurge": "0%", "maxUnavailable": 1}),
            ({"backend": "cuda", "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}, last),
            ({"strategy": {"maxUnavailable": 1}}, {"maxSurge": 1, "maxUnavailable": 1}),
            ({"gpus": 1, "strategy": {"maxSurge": 2}}, {"maxSurge": 2, "maxUnavailable": 0}),
        ):
            release = Release({"decode": values, "networkPolicy": {"enabled": False}})
            self.assertEqual(release.one("Deployment", "r-baton-decode")["spec"]["strategy"]["rollingUpdate"], wanted, values)
        for role in ("router", "prefill"):
            self.assertEqual(Release({}).one("Deployment", f"r-baton-{role}")["spec"]["strategy"]["rollingUpdate"], first, role)

    def test_routers_see_workers_that_start_or_leave(self):
        for role in ("prefill", "decode"):
            self.assertTrue(Release({}).one("Service", f"r-baton-{role}")["spec"]["publishNotReadyAddresses"], role)
        self.assertNotIn("publishNotReadyAddresses", Release({}).one("Service", "r-baton")["spec"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
