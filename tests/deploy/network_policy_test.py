#!/usr/bin/env python3
"""Who reaches whom by the chart's NetworkPolicies: only what a request needs."""
import unittest

from chart import HUB, ROLES, Release, each
from network import Pod, allowed


class NetworkPolicies(unittest.TestCase):
    PORTS = {"grpc": 8470, "health": 8471, "metrics": 9470}

    def pods(self, release):
        pods = {role: Pod(release.one("Deployment", f"r-baton-{role}")["spec"]["template"]["metadata"]["labels"], ports=self.PORTS) for role in ROLES}
        pods["test"] = Pod(release.one("Pod", "r-baton-test")["metadata"]["labels"])
        pods["client"] = Pod({"app": "client"})
        pods["elsewhere"] = Pod({"app": "client"}, namespace="other")
        pods["prometheus"] = Pod({"app": "prometheus"}, namespace="monitoring")
        pods["dns"] = Pod({}, namespace="kube-system")
        pods["internet"] = Pod({}, namespace="internet")
        return pods

    def reach(self, values=None, preset=None):
        """Who reaches whom, as {(from, to, port)}."""
        release = Release(values, preset=preset)
        policies, pods = release.all("NetworkPolicy"), self.pods(release)
        return {
            (a, b, port)
            for a in pods
            for b in pods
            for port in ("grpc", "health", "metrics", 4321)
            if a != b and (a in ROLES + ("test",) or b in ROLES) and b in ROLES and allowed(policies, pods[a], pods[b], port)
        }, policies, pods

    WANTED = {
        ("client", "router", "grpc"),
        ("test", "router", "grpc"),
        ("router", "prefill", "grpc"),
        ("router", "decode", "grpc"),
        ("decode", "prefill", "grpc"),
        ("prefill", "decode", "grpc"),
        ("prometheus", "router", "metrics"),
        ("prometheus", "prefill", "metrics"),
        ("prometheus", "decode", "metrics"),
    }

    def test_only_what_a_request_needs(self):
        reach, policies, pods = self.reach()
        self.assertEqual(reach, self.WANTED)
        for role in ROLES:
            self.assertTrue(allowed(policies, pods[role], pods["dns"], 53))
            self.assertFalse(allowed(policies, pods[role], pods["internet"], 443))

    def test_clients_can_be_named(self):
        reach, _, _ = self.reach({"networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}]}})
        self.assertEqual(reach, self.WANTED - {("client", "router", "grpc")} | {("elsewhere", "router", "grpc")})

    def test_a_gateway_reaches_routers_and_clients_reach_it(self):
        release = Release({"gateway": {"enabled": True}})
        policies, pods = release.all("NetworkPolicy"), self.pods(release)
        gateway = Pod(release.workload("gateway")["spec"]["template"]["metadata"]["labels"], ports={"http": 8000, "metrics": 9470})
        ways = lambda one, other, ports: [port for port in ports if allowed(policies, one, other, port)]
        self.assertEqual(ways(gateway, pods["router"], ["grpc", "health", "metrics"]), ["grpc"])
        for role in ("prefill", "decode"):
            self.assertEqual(ways(gateway, pods[role], ["grpc", "health", "metrics", 4321]), [], role)
            self.assertEqual(ways(pods[role], gateway, ["http", "metrics"]), [], role)
        self.assertEqual(ways(pods["client"], gateway, ["http", "metrics"]), ["http"])
        self.assertEqual(ways(pods["elsewhere"], gateway, ["http", "metrics"]), [])
        self.assertEqual(ways(pods["prometheus"], gateway, ["http", "metrics"]), ["metrics"])
        self.assertEqual(ways(gateway, pods["internet"], [443]), [])
        self.assertTrue(allowed(policies, gateway, pods["dns"], 53))
        # The rest is as it was.
        self.assertEqual(self.reach({"gateway": {"enabled": True}})[0], self.WANTED)
        # Only those that are named.
        named = Release({"gateway": {"enabled": True}, "networkPolicy": {"clients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}]}})
        policies = named.all("NetworkPolicy")
        self.assertEqual(ways(pods["elsewhere"], gateway, ["http"]), ["http"])
        self.assertEqual(ways(pods["client"], gateway, ["http"]), [])
        self.assertEqual(ways(gateway, pods["router"], ["grpc"]), ["grpc"], "the gateway needs no name")

    def test_nobody_scrapes(self):
        reach, _, _ = self.reach({"networkPolicy": {"scrapers": []}})
        self.assertEqual(reach, {one for one in self.WANTED if one[2] != "metrics"})

    def test_gpu_links_choose_their_ports(self):
        nccl = {**each({"gpus": 1}), "link": {"name": "nccl"}}
        reach, _, _ = self.reach(nccl)
        for pair in (("prefill", "decode"), ("decode", "prefill")):
            self.assertIn((*pair, 4321), reach)
        self.assertNotIn(("router", "decode", 4321), reach)
        self.assertNotIn(("client", "decode", "grpc"), reach)
        reach, _, _ = self.reach({**nccl, "networkPolicy": {"workerToWorker": False}})
        self.assertNotIn(("prefill", "decode", 4321), reach)

    def test_gpus_on_the_host_link_open_nothing(self):
        self.assertEqual(self.reach(each({"gpus": 1}))[0], self.WANTED)

    def test_the_links_ports_can_be_few(self):
        reach, policies, pods = self.reach({**each({"gpus": 1}), "link": {"name": "nccl", "portRange": "50000-50009"}})
        self.assertEqual(reach, self.WANTED, "gRPC is open still, and nothing else below the range")
        for port, open_ in ((49999, False), (50000, True), (50009, True), (50010, False)):
            self.assertEqual(allowed(policies, pods["decode"], pods["prefill"], port), open_, port)
        self.assertFalse(allowed(policies, pods["router"], pods["decode"], 50000))

    def test_a_nodes_workers(self):
        values = {"node": {"enabled": True, "gpus": 8, "prefillWorkers": 2, "decodeWorkers": 6}, "link": {"name": "nccl", "portRange": "50000-50009"}}
        release = Release(values)
        policies = release.all("NetworkPolicy")
        labels = release.workload("node")["spec"]["template"]["metadata"]["labels"]
        node, other = Pod(labels), Pod(labels)
        router = Pod(release.workload("router")["spec"]["template"]["metadata"]["labels"], ports=self.PORTS)
        prometheus, client = Pod({}, namespace="monitoring"), Pod({"app": "client"})
        reach = lambda source, target, ports: [port for port in ports if allowed(policies, source, target, port)]
        ports = [8470, 8471, 8479, 8480, 8487, 8488, 9479, 9480, 9487, 9488, 50000]
        self.assertEqual(reach(router, node, ports), [8480, 8487])
        self.assertEqual(reach(node, other, ports), [8480, 8487, 50000])
        self.assertEqual(reach(prometheus, node, ports), [9480, 9487])
        self.assertEqual(reach(client, node, ports), [])
        self.assertEqual(reach(client, router, [8470]), [8470])

    def test_a_download_may_leave(self):
        _, policies, pods = self.reach({"model": HUB})
        self.assertTrue(allowed(policies, pods["decode"], pods["internet"], 443))
        self.assertFalse(allowed(policies, pods["decode"], pods["internet"], 80))

    def test_extra_egress(self):
        _, policies, pods = self.reach({"networkPolicy": {"extraEgress": [{"ports": [{"port": 9000}]}]}})
        self.assertTrue(allowed(policies, pods["decode"], pods["internet"], 9000))

    def test_spans_reach_the_collector(self):
        for url, port in (("http://collector:4318", 4318), ("http://collector", 4318), ("http://collector:80/otlp", 80)):
            _, policies, pods = self.reach({"tracing": {"otlp": url}})
            for role in ("router", "decode"):
                self.assertTrue(allowed(policies, pods[role], pods["internet"], port), url)
        _, policies, pods = self.reach({})
        self.assertFalse(allowed(policies, pods["router"], pods["internet"], 4318))

    def test_switch(self):
        self.assertFalse(Release({"networkPolicy": {"enabled": False}}).all("NetworkPolicy"))


    def test_clients_outside_reach_what_a_balancer_shows(self):
        outside, stranger = Pod({}, namespace="outside", address="10.1.2.3"), Pod({}, namespace="outside", address="8.8.8.8")
        release = Release(preset="many-nodes")
        policies = release.all("NetworkPolicy")
        gateway = Pod(release.one("Deployment", "r-baton-gateway")["spec"]["template"]["metadata"]["labels"], ports={"http": 8000})
        decode = Pod(release.one("Deployment", "r-baton-decode")["spec"]["template"]["metadata"]["labels"], ports=self.PORTS)
        self.assertTrue(allowed(policies, outside, gateway, "http"))
        self.assertFalse(allowed(policies, stranger, gateway, "http"))
        self.assertFalse(allowed(policies, outside, decode, "grpc"))

    def test_names_are_looked_up_wherever_clusters_have_their_servers(self):
        release = Release()
        policies, router = release.all("NetworkPolicy"), self.pods(release)["router"]
        for server, port in ((Pod({}, namespace="kube-system"), 53), (Pod({}, namespace="openshift-dns"), 5353), (Pod({}, namespace="node", address="169.254.20.10"), 53)):
            self.assertTrue(allowed(policies, router, server, port), vars(server))
        self.assertFalse(allowed(policies, router, Pod({}, namespace="node", address="10.0.0.1"), 53))
        self.assertFalse(allowed(policies, router, Pod({}, namespace="kube-system"), 443))

    def test_a_mesh_has_its_port(self):
        mesh = Pod({}, namespace="node", address="10.0.0.9")
        for values, wanted in (({}, False), ({"networkPolicy": {"extraIngress": [{"ports": [{"port": 15008}]}]}}, True)):
            release = Release(values)
            self.assertEqual(allowed(release.all("NetworkPolicy"), mesh, self.pods(release)["decode"], 15008), wanted)
        release = Release({"networkPolicy": {"scrapers": []}})
        self.assertEqual(release.one("NetworkPolicy", "r-baton-common")["spec"]["ingress"], [])

    def test_the_models_server_is_reached_at_its_port(self):
        s3 = lambda url: {"model": {"source": "s3", "s3": {"url": url, "files": {"config.json": "1" * 64}}, "download": {"proxyPorts": [3128]}}}
        internet = Pod({}, namespace="internet", address="1.2.3.4")
        for url, port in (("https://s3.example/b", 443), ("http://minio.storage:9000/b", 9000), ("http://minio.storage/b", 80)):
            release = Release(s3(url))
            policies, decode = release.all("NetworkPolicy"), self.pods(release)["decode"]
            self.assertEqual({p for p in (80, 443, 3128, 9000) if allowed(policies, decode, internet, p)}, {port, 3128}, url)


if __name__ == "__main__":
    unittest.main()
