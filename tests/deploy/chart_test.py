#!/usr/bin/env python3
"""The chart: every switch does what it says, and every preset renders. The gateway is chart_gateway_test.py's, keys of pods are chart_pods_test.py's, what it passes on is
chart_extras_test.py's, parent charts are chart_parent_test.py's, what it refuses is chart_mistakes_test.py's."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from chart import CHART, HELM, HUB, ROLES, SUM, Release, each


class Presets(unittest.TestCase):
    def test_each_renders_and_lints(self):
        for path in sorted((CHART / "presets").glob("*.yaml")):
            with self.subTest(path.stem):
                done = subprocess.run([HELM, "lint", "--strict", str(CHART), "--values", str(path)], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(len(Release(preset=path.stem).workloads()), {"node-8gpu": 3, "one-gpu": 3}.get(path.stem, 4))

    def test_defaults_need_nothing_else(self):
        kinds = {one["apiVersion"].split("/")[0] for one in Release().objects}
        self.assertLessEqual(kinds, {"v1", "apps", "policy", "networking.k8s.io"}, "an object that needs an operator")

    def test_laptop_asks_for_little(self):
        release = Release(preset="laptop")
        for role in ROLES:
            self.assertNotIn("limits", release.container(role)["resources"])
        self.assertFalse(release.all("PodDisruptionBudget") + release.all("NetworkPolicy"))

    def test_many_nodes_has_it_all(self):
        release = Release(preset="many-nodes")
        for kind in ("ScaledObject", "Certificate", "ServiceMonitor", "PrometheusRule"):
            self.assertTrue(release.all(kind), kind)
        decode = release.container("decode")
        self.assertEqual(decode["resources"]["limits"]["nvidia.com/gpu"], 8)
        self.assertEqual(decode["resources"]["limits"]["rdma/hca_shared_devices_a"], 1)
        self.assertEqual(decode["securityContext"]["capabilities"], {"drop": ["ALL"]}, "no capability that this user can't have")
        self.assertEqual(release.flags("decode")["--link-transport"], "rdma")
        self.assertEqual(release.pod("decode")["securityContext"]["sysctls"], [{"name": "net.ipv4.ip_local_port_range", "value": "50000 59999"}])

    def test_presets_for_nccl_ask_for_more_than_sockets_carry(self):
        """A worker that fell back to TCP is not ready."""
        for preset, floor in (("node-8gpu", 50), ("many-nodes", 12), ("efa", 12)):
            release = Release(preset=preset)
            role = "node" if preset == "node-8gpu" else "decode"
            flags = release.flags(role)
            self.assertEqual(flags["--link"], "nccl")
            self.assertGreater(float(flags.get("--link-floor-gbps") or flags["--decode-flag=--link-floor-gbps"]), floor, preset)
            asked = flags.get("--link-transport") or flags["--decode-flag=--link-transport"]
            self.assertEqual(asked, "p2p" if preset == "node-8gpu" else "rdma", preset)
            self.assertIn({"name": "NCCL_RAS_ENABLE", "value": "0"}, release.container(role)["env"])
            self.assertNotIn("NCCL_CUMEM_ENABLE", str(release.container(role)["env"]), "an abort of one end would crash the other")

    def test_tracing(self):
        release = Release({"tracing": {"otlp": "http://collector:4318", "sample": 0.1}})
        for role in ROLES:
            self.assertEqual(release.flags(role)["--otlp"], "http://collector:4318", role)
        self.assertEqual(release.flags("router")["--trace-sample"], "0.1")
        self.assertNotIn("--trace-sample", release.flags("decode"))
        self.assertNotIn("--otlp", Release().flags("router"))

    def test_efa(self):
        release = Release(preset="efa")
        for role in ("prefill", "decode"):
            limits = release.container(role)["resources"]["limits"]
            self.assertEqual((limits["vpc.amazonaws.com/efa"], limits["hugepages-2Mi"], limits["nvidia.com/gpu"]), (32, "5Gi", 8))
            env = {one["name"]: one.get("value") for one in release.container(role)["env"]}
            self.assertEqual(env["FI_PROVIDER"], "efa")
            (copy,) = release.pod(role)["initContainers"]
            self.assertEqual(copy["command"], ["sh", "-c", "cp -rL /opt/aws-ofi-nccl/lib/. /mnt/nccl-plugin/"])
            self.assertEqual([mount for mount in copy["volumeMounts"]], [{"name": "nccl-plugin", "mountPath": "/mnt/nccl-plugin"}])
            self.assertIn({"name": "nccl-plugin", "mountPath": "/opt/nccl-plugin/lib", "readOnly": True}, release.container(role)["volumeMounts"])
        self.assertNotIn("nccl-plugin", str(release.pod("router")))
        dockerfile = (CHART.parents[1] / "container" / "Dockerfile.cuda").read_text()
        self.assertRegex(dockerfile, r"LD_LIBRARY_PATH=\S*/opt/nccl-plugin/lib", "where the image looks for it")

    def test_one_gpu_takes_one_gpu(self):
        release = Release(preset="one-gpu")
        gpus = {one["metadata"]["name"]: one["spec"]["replicas"] * int(box.get("resources", {}).get("limits", {}).get("nvidia.com/gpu", 0)) for one in release.workloads() for box in one["spec"]["template"]["spec"]["containers"]}
        self.assertEqual({name: count for name, count in gpus.items() if count}, {"r-baton-decode": 1})
        self.assertEqual(release.workload("decode")["spec"]["strategy"]["rollingUpdate"], {"maxSurge": 0, "maxUnavailable": 1}, "there is no second GPU for a new pod")
        self.assertNotIn("--prefill", release.flags("router"))
        self.assertEqual(release.workload("gateway")["spec"]["replicas"], 2)

    def test_sockets_go_over_the_host_link(self):
        release = Release(preset="sockets")
        self.assertEqual(release.flags("decode")["--link"], "host")
        self.assertEqual(release.flags("decode")["--backend"], "cuda")


class Node(unittest.TestCase):
    """Several workers in one pod, for NVLink."""

    ON = {"enabled": True, "prefillWorkers": 2, "decodeWorkers": 3}

    def release(self, more=None, **values):
        return Release({"node": {**self.ON, **(more or {})}, **values})

    def test_replaces_both_pools(self):
        release = self.release()
        self.assertEqual({one["metadata"]["name"] for one in release.workloads()}, {"r-baton-router", "r-baton-node", "r-baton-gateway"})
        self.assertFalse([one for one in release.objects if one["metadata"]["name"].endswith(("-prefill", "-decode"))])
        self.assertFalse(Release().all("StatefulSet"))

    def test_routers_look_for_every_worker_of_every_node(self):
        release = self.release()
        service = release.one("Service", "r-baton-node")["spec"]
        self.assertEqual(service["clusterIP"], "None")
        name = "dns:///r-baton-node.ns.svc"
        flags = release.flags("router")
        self.assertEqual(flags["--prefill"], f"{name}:8480,{name}:8481")
        self.assertEqual(flags["--decode"], f"{name}:8482,{name}:8483,{name}:8484")
        ports = {port["name"]: port["port"] for port in service["ports"]}
        self.assertEqual({name: port for name, port in ports.items() if not name.startswith("m-")}, {"prefill-0": 8480, "prefill-1": 8481, "decode-0": 8482, "decode-1": 8483, "decode-2": 8484})
        inside = {port["name"]: port["containerPort"] for port in release.container("node")["ports"]}
        self.assertEqual(ports, {name: port for name, port in inside.items() if name != "health"})
        self.assertEqual(len(set(inside.values())), len(inside))
        self.assertEqual(release.flags("node")["--worker-listen"], "[::]:8480", "the first of them")
        self.assertEqual(release.flags("node")["--worker-metrics"], f"[::]:{ports['m-prefill-0']}")
        self.assertNotIn("--prefill", Release({"node": {"enabled": True, "prefillWorkers": 0}}).flags("router"))

    def test_each_worker_has_its_gpus(self):
        flags = self.release({"gpus": 8}).flags("node")
        self.assertEqual((flags["--prefill-devices"], flags["--decode-devices"]), ("0-1", "2-4"))
        self.assertEqual((flags["--prefill"], flags["--decode"], flags["--backend"]), ("2", "3", "cuda"))
        flags = self.release({"gpus": 8, "tensorParallel": 2, "prefillWorkers": 1}).flags("node")
        self.assertEqual((flags["--prefill-devices"], flags["--decode-devices"], flags["--tp"]), ("0-1", "2-7", "2"))
        flags = self.release().flags("node")
        self.assertFalse({"--prefill-devices", "--decode-devices"} & set(flags))
        self.assertEqual(flags["--backend"], "cpu")
        self.assertEqual(self.release({"gpus": 8}).container("node")["resources"]["limits"]["nvidia.com/gpu"], 8)

    def test_one_supervisor_and_its_workers(self):
        release = self.release({"kvMemory": "3GiB", "chunkTokens": 2048, "tokenBudget": 4096, "maxRunning": 9, "localPrefillTokens": 7, "speculation": "ngram,grammar,draft-model", "draftModel": "/models/small", "threads": 5}, link={"floorGbps": 2}, longestGenerationSeconds=100)
        container, flags = release.container("node"), release.flags("node")
        self.assertEqual(container["command"], ["/usr/local/bin/baton"])
        self.assertEqual(container["args"][:2], ["serve", "--no-router"])
        for flag, value in {"--kv-memory": "3GiB", "--prefill-flag=--chunk-tokens": "2048", "--prefill-flag=--token-budget": "4096", "--max-running": "9", "--local-prefill-tokens": "7", "--speculation": "ngram,grammar,draft-model", "--draft-model": "/models/small", "--threads": "5", "--drain-seconds": "100", "--worker-prefix": "$(POD_NAME)"}.items():
            self.assertEqual(flags[flag], value, flag)
        # Prefill workers of the same pod, each of them.
        self.assertEqual(flags["--decode-flag=--link-peers"], "127.0.0.1:8480,127.0.0.1:8481")
        self.assertEqual(flags["--decode-flag=--link-floor-gbps"], "2")
        # The supervisor ends a process 5 s after its time is over (kTimeToLeave), and the kubelet the pod after that.
        self.assertGreater(release.pod("node")["terminationGracePeriodSeconds"], 100 + 5)

    def test_probes_ask_the_supervisor(self):
        release = self.release()
        container = release.container("node")
        self.assertEqual(container["startupProbe"]["grpc"], {"port": 8471, "service": "live"})
        self.assertEqual(container["readinessProbe"]["grpc"], {"port": 8471})
        self.assertEqual(release.flags("node")["--health"], "[::]:8471")
        startup = container["startupProbe"]
        self.assertEqual(release.flags("node")["--start-timeout"], f"{startup['periodSeconds'] * startup['failureThreshold']}s")

    def test_one_pod_per_node_with_one_shared_memory(self):
        release = self.release()
        pod = release.pod("node")
        self.assertEqual([one["whenUnsatisfiable"] for one in pod["topologySpreadConstraints"]], ["DoNotSchedule"])
        self.assertIn({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}, pod["volumes"])
        self.assertEqual(release.workload("node")["spec"]["serviceName"], "r-baton-node")
        self.assertEqual(release.workload("node")["spec"]["podManagementPolicy"], "Parallel")

    def test_each_worker_is_scraped_as_one_of_its_role(self):
        monitor = self.release(observability={"serviceMonitor": {"enabled": True}}).one("ServiceMonitor", "r-baton")
        endpoints = {one["port"]: {label["targetLabel"]: label.get("replacement") for label in one["relabelings"]} for one in monitor["spec"]["endpoints"]}
        self.assertEqual(set(endpoints), {"metrics", "m-prefill-0", "m-prefill-1", "m-decode-0", "m-decode-1", "m-decode-2"})
        self.assertEqual(endpoints["m-decode-2"], {"release": "r", "component": "decode", "pod": "$1-decode-2"})
        self.assertEqual(endpoints["m-prefill-1"]["component"], "prefill")

    def test_keys_of_every_role_hold_here_too(self):
        own = {"nodeSelector": {"a": "b"}, "runtimeClassName": "nvidia", "podLabels": {"l": "v"}, "extraEnv": [{"name": "A", "value": "1"}], "extraArgs": ["--tolerant"]}
        release = self.release(own, tls={"enabled": True, "existingSecret": "s"}, auth={"fleetKey": {"existingSecret": "f"}})
        self.assertEqual(release.pod("node")["runtimeClassName"], "nvidia")
        self.assertIn({"name": "A", "value": "1"}, release.container("node")["env"])
        self.assertIn("--tolerant", release.container("node")["args"])
        for flag in ("--tls-cert", "--tls-peer-name", "--fleet-key-file"):
            self.assertEqual(release.flags("node")[flag], release.flags("router")[flag])
        selector = release.one("PodDisruptionBudget", "r-baton-node")["spec"]["selector"]["matchLabels"]
        self.assertLessEqual(selector.items(), release.workload("node")["spec"]["template"]["metadata"]["labels"].items())


class Discovery(unittest.TestCase):
    def test_routers_find_workers_by_headless_services(self):
        release = Release()
        for role in ("prefill", "decode"):
            service = release.one("Service", f"r-baton-{role}")
            self.assertEqual(service["spec"]["clusterIP"], "None")
            port = next(p["port"] for p in service["spec"]["ports"] if p["name"] == "grpc")
            self.assertEqual(release.flags("router")[f"--{role}"], f"dns:///r-baton-{role}.ns.svc:{port}")

    def test_clients_find_every_router_by_a_headless_service(self):
        routers = Release({"gateway": {"enabled": False}}).one("Service", "r-baton-router-grpc")["spec"]
        self.assertEqual(routers["clusterIP"], "None")
        self.assertEqual(routers["ports"], [{"name": "grpc", "port": 8470, "targetPort": "grpc"}])

    def test_selectors_select_their_pods(self):
        release = Release(preset="many-nodes")
        pods = {role: release.one("Deployment", f"r-baton-{role}")["spec"]["template"]["metadata"]["labels"] for role in (*ROLES, "gateway")}
        for one in release.all("Service") + release.all("PodDisruptionBudget") + release.all("Deployment"):
            selector = one["spec"]["selector"].get("matchLabels", one["spec"]["selector"])
            hit = [role for role, labels in pods.items() if selector.items() <= labels.items()]
            self.assertEqual(hit, [one["metadata"]["labels"]["app.kubernetes.io/component"]], one["metadata"]["name"])

    def test_without_prefill(self):
        release = Release({"prefill": {"enabled": False}})
        self.assertEqual({one["metadata"]["name"] for one in release.all("Deployment")}, {"r-baton-router", "r-baton-decode", "r-baton-gateway"})
        self.assertNotIn("--prefill", release.flags("router"))
        self.assertFalse([o for o in release.objects if o["metadata"]["name"].endswith("-prefill")])

    def test_door(self):
        service = Release({"router": {"service": {"type": "LoadBalancer", "port": 443, "annotations": {"a": "b"}}}, "networkPolicy": {"enabled": False}}).one("Service", "r-baton")
        self.assertEqual(service["spec"]["type"], "LoadBalancer")
        self.assertEqual(service["spec"]["ports"][0]["port"], 443)
        self.assertEqual(service["metadata"]["annotations"], {"a": "b"})
        self.assertEqual([port["name"] for port in service["spec"]["ports"]], ["grpc"], "metrics on the public port")

    def test_proxies_hear_whether_it_is_plain(self):
        port = lambda values: Release(values).one("Service", "r-baton")["spec"]["ports"][0]
        self.assertEqual(port({})["appProtocol"], "kubernetes.io/h2c")
        self.assertEqual(port({"tls": {"enabled": True, "existingSecret": "x"}})["appProtocol"], "https")

    def test_names_that_releases_may_have(self):
        for name in ("llama-3.1-8b", "a" * 53, "x.y-" + "z" * 40):
            release = Release({"gateway": {"enabled": True}, "node": {"enabled": True}}, name=name)
            for one in release.objects:
                longest = 52 if one["kind"] == "StatefulSet" else 63
                self.assertRegex(one["metadata"]["name"], rf"^[a-z][-a-z0-9]{{0,{longest - 1}}}$", (name, one["kind"]))

    def test_a_new_chart_alone_restarts_no_pod(self):
        with tempfile.TemporaryDirectory() as folder:
            newer = pathlib.Path(folder) / "baton"
            shutil.copytree(CHART, newer)
            text = (newer / "Chart.yaml").read_text()
            (newer / "Chart.yaml").write_text(re.sub(r"(?m)^version: .*", "version: 9.9.9", text))
            values = {"gateway": {"enabled": True}}
            pods = lambda release: {one["metadata"]["name"]: one["spec"]["template"] for one in release.workloads()}
            old, new = Release(values), Release(values, chart=newer)
            self.assertIn("9.9.9", new.text)
            self.assertEqual(pods(old), pods(new))

    def test_two_releases_share_nothing(self):
        one, other = Release(), Release(name="q")
        names = lambda release: {(o["kind"], o["metadata"]["name"]) for o in release.objects}
        self.assertFalse(names(one) & names(other))

    def test_names(self):
        self.assertTrue(Release({"fullnameOverride": "f"}).one("Deployment", "f-decode"))
        self.assertTrue(Release({"nameOverride": "n"}).one("Deployment", "r-n-decode"))
        self.assertTrue(Release(name="my-baton").one("Deployment", "my-baton-decode"))

    def test_common_labels(self):
        for one in Release({"commonLabels": {"team": "x"}}, preset="many-nodes").objects:
            if one["kind"] != "Pod":
                self.assertEqual(one["metadata"]["labels"]["team"], "x", one["metadata"]["name"])


class Model(unittest.TestCase):
    def test_of_the_image(self):
        release = Release()
        self.assertEqual(release.flags("decode")["--model"], "/opt/baton/models/baton-tiny")
        self.assertNotIn("initContainers", release.pod("decode"))

    def test_claim(self):
        release = Release({"model": {"source": "pvc", "pvc": {"claimName": "c", "subPath": "s"}}})
        self.assertIn({"name": "model", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}, release.pod("decode")["volumes"])
        self.assertIn({"name": "model", "mountPath": "/models", "readOnly": True, "subPath": "s"}, release.container("decode")["volumeMounts"])
        self.assertEqual(release.flags("router")["--model"], "/models")

    def test_host_path(self):
        release = Release({"model": {"source": "hostPath", "hostPath": {"path": "/srv/m"}}})
        self.assertIn({"name": "model", "hostPath": {"path": "/srv/m", "type": "Directory"}}, release.pod("decode")["volumes"])

    def test_hugging_face(self):
        release = Release({"model": HUB})
        manifest = release.one("ConfigMap", "r-baton-model")["data"]["manifest"]
        self.assertEqual(manifest.split("\n")[0], f"https://huggingface.co/o/m/resolve/{'a' * 40}")
        self.assertIn(f"{SUM}  config.json\n", manifest)
        init = release.pod("decode")["initContainers"][0]
        self.assertEqual([e["name"] for e in init["env"]], ["WEIGHTS", "TOKEN"])
        self.assertEqual(init["env"][0]["value"], "yes")
        self.assertEqual(release.pod("router")["initContainers"][0]["env"][0]["value"], "no")
        self.assertTrue(init["securityContext"]["readOnlyRootFilesystem"])

    def test_a_changed_manifest_rolls_the_pods(self):
        def checksum(files):
            model = dict(HUB, huggingFace=dict(HUB["huggingFace"], files=files))
            meta = Release({"model": model}).one("Deployment", "r-baton-decode")["spec"]["template"]["metadata"]
            return meta["annotations"]["checksum/model"]

        self.assertNotEqual(checksum({"config.json": SUM}), checksum({"config.json": "1" * 64}))
        self.assertEqual(checksum({"config.json": SUM}), checksum({"config.json": SUM}))

    def test_s3(self):
        model = {"name": "m", "source": "s3", "s3": {"url": "https://s3.example/b/m/", "files": {"config.json": SUM}, "credentialsSecret": {"name": "c"}}}
        release = Release({"model": model})
        self.assertTrue(release.one("ConfigMap", "r-baton-model")["data"]["manifest"].startswith("https://s3.example/b/m\n"))
        self.assertEqual([e["name"] for e in release.pod("decode")["initContainers"][0]["env"]], ["WEIGHTS", "REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"])

    def test_download_kept_in_a_claim(self):
        release = Release({"model": dict(HUB, download={"claimName": "cache"})})
        self.assertIn({"name": "model", "persistentVolumeClaim": {"claimName": "cache"}}, release.pod("decode")["volumes"])
        self.assertIn({"name": "model", "emptyDir": {"sizeLimit": "1Gi"}}, release.pod("router")["volumes"])


class Gguf(unittest.TestCase):
    """A model that is one file of its folder."""

    FILE = "sub/m-Q4_K_M.gguf"
    HUB = {**HUB, "file": FILE, "huggingFace": {**HUB["huggingFace"], "files": {FILE: SUM}}}

    def test_every_process_is_told_of_the_file(self):
        places = {
            "image": ({"image": {"path": "/opt/m"}}, "/opt/m"),
            "pvc": ({"pvc": {"claimName": "c"}}, "/models"),
            "hostPath": ({"hostPath": {"path": "/srv"}}, "/models"),
            "huggingFace": (self.HUB, "/models"),
        }
        for source, (own, folder) in places.items():
            release = Release({"model": {"name": "m", **own, "source": source, "file": self.FILE}})
            for role in ROLES:
                self.assertEqual(release.flags(role)["--model"], f"{folder}/{self.FILE}")
                mounts = [one["mountPath"] for one in release.container(role)["volumeMounts"] if one["name"] == "model"]
                self.assertEqual(mounts, [] if source == "image" else ["/models"], "the folder, in which the download puts it")
        node = Release({"node": {"enabled": True}, "model": self.HUB})
        self.assertEqual(node.flags("node")["--model"], f"/models/{self.FILE}")

    def test_routers_pull_it_whole(self):
        release = Release({"model": {**self.HUB, "download": {"sizeLimit": "9Gi"}}})
        for role in ROLES:
            self.assertIn({"name": "model", "emptyDir": {"sizeLimit": "9Gi"}}, release.pod(role)["volumes"])
        release = Release({"model": {**self.HUB, "download": {"claimName": "cache"}}})
        for role in ROLES:
            self.assertIn({"name": "model", "persistentVolumeClaim": {"claimName": "cache"}}, release.pod(role)["volumes"])

    def test_of_one_of_several_models(self):
        release = Release({"model": self.HUB, "models": {"more": {"model": {"name": "more", "source": "hostPath", "hostPath": {"path": "/m"}}}}})
        self.assertEqual(release.flags("decode-more")["--model"], "/models-more", "not the other one's file")
        own = {"name": "more", "source": "hostPath", "hostPath": {"path": "/m"}, "file": "m.gguf"}
        release = Release({"models": {"more": {"model": own}}})
        self.assertEqual(release.flags("decode-more")["--model"], "/models-more/m.gguf")
        self.assertIn('"folder": "/models-more/m.gguf"', release.one("ConfigMap", "r-baton-models")["data"]["models.json"])


class Secrets(unittest.TestCase):
    def test_keys(self):
        release = Release({"auth": {"tenants": {"existingSecret": "t"}, "testKey": {"existingSecret": "a"}, "fleetKey": {"existingSecret": "f", "key": "k"}, "tenantSalt": {"existingSecret": "s"}}})
        router, decode = release.flags("router"), release.flags("decode")
        self.assertEqual(router["--tenants"], "/etc/baton/tenants/tenants.json")
        self.assertEqual(router["--tenant-salt-file"], "/etc/baton/salt/salt")
        for flags in (router, decode):
            self.assertEqual(flags["--fleet-key-file"], "/etc/baton/fleet/k")
        self.assertNotIn("--tenants", decode)
        self.assertNotIn("tenants", [v["name"] for v in release.pod("decode")["volumes"]], "a worker that could read the tenants' keys")

    def test_tls_by_secret(self):
        release = Release({"tls": {"enabled": True, "existingSecret": "x", "clientCaSecret": "c"}})
        for role in ROLES:
            self.assertEqual(release.flags(role)["--tls-cert"], "/etc/baton/tls/tls.crt")
            volume = next(v for v in release.pod(role)["volumes"] if v["name"] == "tls")
            self.assertEqual(volume["secret"]["secretName"], "x")
            self.assertEqual(release.flags(role)["--tls-peer-name"], "r-baton.ns.svc")
        self.assertEqual(release.flags("router")["--tls-client-ca"], "/etc/baton/client-ca/ca.crt")
        self.assertNotIn("--tls-client-ca", release.flags("decode"))
        self.assertFalse(release.all("Certificate"))

    def test_tls_by_cert_manager(self):
        release = Release({"tls": {"enabled": True, "certManager": {"enabled": True, "issuerRef": {"name": "i"}}}})
        certificate = release.one("Certificate", "r-baton")["spec"]
        volume = next(v for v in release.pod("decode")["volumes"] if v["name"] == "tls")
        self.assertEqual(volume["secret"]["secretName"], certificate["secretName"])
        self.assertIn(release.flags("decode")["--tls-peer-name"], certificate["dnsNames"])
        self.assertIn(release.flags("gateway")["--tls-server-name"], certificate["dnsNames"])
        self.assertIn("r-baton-router-grpc.ns.svc", certificate["dnsNames"], "clients that spread calls over all routers")
        for name in ("r-baton", "r-baton-prefill", "r-baton-decode"):
            self.assertTrue(release.one("Service", name))
            self.assertIn(f"{name}.ns.svc", certificate["dnsNames"])

    def test_no_flag_without_its_switch(self):
        for role in ROLES:
            for flag in ("--tls-cert", "--tls-client-ca", "--fleet-key-file", "--tenants", "--tenant-salt-file"):
                self.assertNotIn(flag, Release().flags(role))


class Scaling(unittest.TestCase):
    def test_budgets(self):
        self.assertEqual(Release().one("PodDisruptionBudget", "r-baton-decode")["spec"]["maxUnavailable"], 1)
        spec = Release({"decode": {"pdb": {"maxUnavailable": None, "minAvailable": "50%"}}}).one("PodDisruptionBudget", "r-baton-decode")["spec"]
        self.assertEqual(spec["minAvailable"], "50%")
        self.assertNotIn("maxUnavailable", spec)

    def test_replicas_are_left_to_the_autoscaler(self):
        self.assertEqual(Release({"decode": {"replicas": 3}}).one("Deployment", "r-baton-decode")["spec"]["replicas"], 3)
        self.assertNotIn("replicas", Release({"decode": {"autoscaling": {"enabled": True}}}).one("Deployment", "r-baton-decode")["spec"])

    def test_signals_by_hpa(self):
        release = Release(each({"autoscaling": {"enabled": True, "minReplicas": 2, "maxReplicas": 5}}))
        names = {}
        for role in ROLES:
            spec = release.one("HorizontalPodAutoscaler", f"r-baton-{role}")["spec"]
            self.assertEqual((spec["minReplicas"], spec["maxReplicas"]), (2, 5))
            self.assertEqual(spec["scaleTargetRef"]["name"], f"r-baton-{role}")
            names[role] = [m.get("resource", {}).get("name") or m[m["type"].lower()]["metric"]["name"] for m in spec["metrics"]]
        self.assertEqual(names, {"router": ["cpu"], "prefill": ["baton_prefill_pending_tokens", "baton_ttft_p95_seconds"], "decode": ["baton_kv_used_percent", "baton_tpot_p95_seconds"]})

    def test_signals_by_keda(self):
        release = Release(each({"autoscaling": {"enabled": True, "kind": "keda"}}))
        self.assertFalse(release.all("HorizontalPodAutoscaler"))
        query = lambda role: " ".join(t["metadata"].get("query", "") for t in release.one("ScaledObject", f"r-baton-{role}")["spec"]["triggers"])
        self.assertIn('baton_prefill_pending_tokens{namespace="ns",release="r"}', query("prefill"))
        self.assertIn("baton:ttft_seconds:p95_5m", query("prefill"))
        self.assertIn("baton:kv_used:ratio", query("decode"))
        self.assertIn("baton:tpot_seconds:p95_5m", query("decode"))


class Observability(unittest.TestCase):
    ON = {"observability": {"serviceMonitor": {"enabled": True, "labels": {"a": "b"}, "interval": "7s"}, "prometheusRule": {"enabled": True, "labels": {"c": "d"}, "runbookUrl": "https://wiki/rb.md"}, "dashboards": {"enabled": True}}}

    def test_monitor_finds_every_metrics_port(self):
        release = Release(self.ON)
        monitor = release.one("ServiceMonitor", "r-baton")
        self.assertEqual(monitor["metadata"]["labels"]["a"], "b")
        self.assertEqual(monitor["spec"]["endpoints"][0]["interval"], "7s")
        wanted = monitor["spec"]["selector"]["matchLabels"]
        found = {s["spec"]["selector"]["app.kubernetes.io/component"] for s in release.all("Service") if wanted.items() <= s["metadata"]["labels"].items() and any(p["name"] == "metrics" for p in s["spec"]["ports"])}
        self.assertEqual(found, {*ROLES, "gateway"})

    def test_monitor_makes_the_labels_that_rules_use(self):
        labels = {r["targetLabel"] for r in Release(self.ON).one("ServiceMonitor", "r-baton")["spec"]["endpoints"][0]["relabelings"]}
        self.assertEqual(labels, {"release", "component", "pod"})

    def test_rules_link_the_runbook(self):
        release = Release(self.ON)
        groups = release.one("PrometheusRule", "r-baton")["spec"]["groups"]
        links = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"] if "alert" in rule]
        self.assertTrue(links)
        for link in links:
            self.assertTrue(link.startswith("https://wiki/rb.md#"), link)

    def test_dashboards(self):
        import json

        maps = [m for m in Release(self.ON).all("ConfigMap") if "grafana_dashboard" in m["metadata"]["labels"]]
        self.assertEqual(len(maps), len(list((CHART / "files" / "dashboards").glob("*.json"))))
        self.assertGreaterEqual(len(maps), 7)
        for one in maps:
            for text in one["data"].values():
                panels = [panel for panel in json.loads(text)["panels"] if panel["type"] != "row"]
                # With a longer interval of scrapes than Grafana knows of, rates would be empty.
                self.assertEqual({target["interval"] for panel in panels for target in panel["targets"]}, {"7s"})

    def test_a_grafana_has_the_dashboards_once(self):
        """They have variables for namespaces and releases; files of one name from two releases would take each other's place, and two files of one uid are refused by Grafana."""
        names = lambda **of: {one["metadata"]["name"] for one in Release(self.ON, **of).all("ConfigMap")}
        self.assertEqual(names(), names(name="q"))
        self.assertIn("baton-dashboard-overview", names())

    def test_off(self):
        release = Release()
        self.assertFalse(release.all("ServiceMonitor") + release.all("PrometheusRule") + release.all("ConfigMap"))


class HelmTest(unittest.TestCase):
    def test_health_then_one_generation(self):
        pod = Release({"router": {"service": {"port": 9}}}).one("Pod", "r-baton-test")
        self.assertEqual(pod["metadata"]["annotations"]["helm.sh/hook"], "test")
        self.assertEqual(pod["spec"]["initContainers"][0]["args"][:2], ["health", "--server=r-baton.ns.svc:9"])
        self.assertEqual(pod["spec"]["containers"][0]["args"][0], "generate")
        self.assertNotIn("volumeMounts", pod["spec"]["containers"][0])

    def test_with_tls(self):
        pod = Release({"tls": {"enabled": True, "existingSecret": "x"}}).one("Pod", "r-baton-test")
        for container in pod["spec"]["initContainers"] + pod["spec"]["containers"]:
            self.assertIn("--tls-ca=/etc/baton/tls/ca.crt", container["args"])
            self.assertEqual(container["volumeMounts"][0]["mountPath"], "/etc/baton/tls")

    def test_with_tenants(self):
        pod = Release({"auth": {"tenants": {"existingSecret": "t"}, "testKey": {"existingSecret": "a", "key": "k"}}}).one("Pod", "r-baton-test")
        self.assertIn("--api-key-file=/etc/baton/key/k", pod["spec"]["containers"][0]["args"])
        self.assertEqual(pod["spec"]["volumes"][0]["secret"]["secretName"], "a")


class ServiceAccount(unittest.TestCase):
    def test_made_or_given(self):
        self.assertEqual(Release().pod("decode")["serviceAccountName"], "r-baton")
        release = Release({"serviceAccount": {"create": False, "name": "given"}})
        self.assertEqual(release.pod("decode")["serviceAccountName"], "given")
        self.assertFalse(release.all("ServiceAccount"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
