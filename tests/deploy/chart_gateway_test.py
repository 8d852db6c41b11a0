#!/usr/bin/env python3
"""The chart's gateway, and the routes that lead to it."""
import sys
import unittest

from chart import Release


class Gateway(unittest.TestCase):
    """HTTP before the routers."""

    def release(self, more=None, **values):
        return Release({"gateway": {"enabled": True, **(more or {})}, **values})

    def test_clients_from_outside_meet_it_by_default(self):
        release = Release()
        self.assertTrue(release.one("Deployment", "r-baton-gateway"))
        self.assertEqual(release.one("Service", "r-baton")["spec"]["type"], "ClusterIP", "the router is for services of the cluster")

    def test_can_be_left_out(self):
        self.assertFalse([one for one in Release({"gateway": {"enabled": False}}).objects if "gateway" in one["metadata"]["name"]])

    def test_it_stands_before_every_router(self):
        release = self.release()
        self.assertEqual(release.flags("gateway")["--router"], "dns:///r-baton-router-grpc.ns.svc:8470")
        routers = release.one("Service", "r-baton-router-grpc")["spec"]
        self.assertEqual(routers["clusterIP"], "None", "one address would be one router")
        self.assertEqual([(port["port"], port["targetPort"]) for port in routers["ports"]], [(8470, "grpc")])
        self.assertLessEqual(routers["selector"].items(), release.workload("router")["spec"]["template"]["metadata"]["labels"].items())
        self.assertFalse(routers["selector"].items() <= release.workload("gateway")["spec"]["template"]["metadata"]["labels"].items())

    def test_door(self):
        release = self.release({"service": {"type": "LoadBalancer", "port": 80, "annotations": {"a": "b"}}}, networkPolicy={"enabled": False})
        service = release.one("Service", "r-baton-gateway")
        self.assertEqual((service["spec"]["type"], service["metadata"]["annotations"]), ("LoadBalancer", {"a": "b"}))
        self.assertEqual([(port["name"], port["port"], port["targetPort"]) for port in service["spec"]["ports"]], [("http", 80, "http"), ("grpc", 8470, "http")], "metrics on the public port")
        self.assertEqual([port["appProtocol"] for port in service["spec"]["ports"]], ["http", "kubernetes.io/h2c"])
        ports = {port["name"]: port["containerPort"] for port in release.container("gateway")["ports"]}
        self.assertEqual(release.flags("gateway")["--listen"], f"[::]:{ports['http']}")
        self.assertEqual(release.flags("gateway")["--metrics"], f"[::]:{ports['metrics']}")
        self.assertEqual(release.one("Service", "r-baton-gateway-metrics")["spec"]["ports"][0]["targetPort"], "metrics")

    def test_probes_ask_by_http(self):
        container = self.release().container("gateway")
        for probe, path in (("startupProbe", "/health"), ("livenessProbe", "/health"), ("readinessProbe", "/ready")):
            self.assertEqual(container[probe]["httpGet"], {"path": path, "port": "http", "scheme": "HTTP"})

    def test_open_streams_may_end(self):
        release = self.release({"preStopSeconds": 7}, longestGenerationSeconds=1000)
        self.assertEqual(release.flags("gateway")["--drain-seconds"], "1000")
        self.assertEqual(release.pod("gateway")["terminationGracePeriodSeconds"], 1022)
        self.assertEqual(release.container("gateway")["lifecycle"]["preStop"]["sleep"]["seconds"], 7)
        self.assertNotIn("lifecycle", self.release({"preStopSeconds": 0}).container("gateway"))

    def test_locked_down(self):
        release = self.release()
        pod, container = release.pod("gateway"), release.container("gateway")
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        self.assertFalse(pod["automountServiceAccountToken"])
        self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
        self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
        self.assertNotIn("volumes", pod, "neither a model nor secrets")

    def test_tls_to_routers_needs_no_key(self):
        release = self.release(tls={"enabled": True, "existingSecret": "s"}, auth={"fleetKey": {"existingSecret": "f"}})
        flags = release.flags("gateway")
        self.assertEqual((flags["--tls-ca"], flags["--tls-server-name"]), ("/etc/baton/ca/ca.crt", "r-baton.ns.svc"))
        (volume,) = release.pod("gateway")["volumes"]
        self.assertEqual(volume["secret"]["items"], [{"key": "ca.crt", "path": "ca.crt"}])
        self.assertNotIn("--fleet-key-file", flags)

    def test_tls_for_clients(self):
        release = self.release({"tls": {"existingSecret": "public"}}, tls={"enabled": True, "existingSecret": "fleet"})
        flags, container = release.flags("gateway"), release.container("gateway")
        self.assertEqual((flags["--tls-cert"], flags["--tls-key"], flags["--tls-ca"]), ("/etc/baton/tls/tls.crt", "/etc/baton/tls/tls.key", "/etc/baton/ca/ca.crt"))
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        secrets = {volume["name"]: volume["secret"]["secretName"] for volume in release.pod("gateway")["volumes"]}
        self.assertEqual((mounts, secrets), ({"ca": "/etc/baton/ca", "tls": "/etc/baton/tls"}, {"ca": "fleet", "tls": "public"}))
        self.assertEqual({container[probe]["httpGet"]["scheme"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")}, {"HTTPS"})
        self.assertEqual(release.one("Service", "r-baton-gateway")["spec"]["ports"][0]["appProtocol"], "https")
        self.assertNotIn("--tls-cert", self.release().flags("gateway"))

    def test_its_own_keys(self):
        own = {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "x", "operator": "Exists"}], "affinity": {"nodeAffinity": {}}, "priorityClassName": "high"}
        release = self.release({**own, "replicas": 5, "maxConnections": 70, "maxConnectionsPerAddress": 30, "logLevel": "warn", "podLabels": {"l": "v"}, "podAnnotations": {"k": "w"},
                                "extraEnv": [{"name": "A", "value": "1"}], "extraVolumes": [{"name": "v", "emptyDir": {}}], "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
                                "image": {"tag": "9"}}, imagePullSecrets=["s"])
        for key, value in own.items():
            self.assertEqual(release.pod("gateway")[key], value)
            self.assertNotIn(key, self.release().pod("gateway"))
        flags = release.flags("gateway")
        self.assertEqual((flags["--max-connections"], flags["--max-connections-per-address"], flags["--log-level"]), ("70", "30", "warn"))
        workload, container = release.workload("gateway"), release.container("gateway")
        self.assertEqual(workload["spec"]["replicas"], 5)
        meta = workload["spec"]["template"]["metadata"]
        self.assertEqual((meta["labels"]["l"], meta["annotations"]["k"]), ("v", "w"))
        self.assertEqual((container["env"], container["volumeMounts"], release.pod("gateway")["volumes"]),
                         ([{"name": "A", "value": "1"}], [{"name": "v", "mountPath": "/v"}], [{"name": "v", "emptyDir": {}}]))
        self.assertEqual((container["image"], release.pod("gateway")["imagePullSecrets"]), ("baton:9", [{"name": "s"}]))
        spread = release.pod("gateway")["topologySpreadConstraints"][0]
        self.assertEqual(spread["labelSelector"]["matchLabels"]["app.kubernetes.io/component"], "gateway")

    def test_scaled_by_cpu(self):
        for kind in ("hpa", "keda"):
            release = self.release({"autoscaling": {"enabled": True, "kind": kind, "targetCpuPercent": 55}})
            self.assertNotIn("replicas", release.workload("gateway")["spec"])
            if kind == "hpa":
                (metric,) = release.one("HorizontalPodAutoscaler", "r-baton-gateway")["spec"]["metrics"]
                self.assertEqual(metric["resource"]["target"]["averageUtilization"], 55)
            else:
                (trigger,) = release.one("ScaledObject", "r-baton-gateway")["spec"]["triggers"]
                self.assertEqual((trigger["type"], trigger["metadata"]["value"]), ("cpu", "55"))
        self.assertTrue(self.release().one("PodDisruptionBudget", "r-baton-gateway"))
        self.assertFalse([one for one in self.release({"pdb": {"enabled": False}}).all("PodDisruptionBudget") if one["metadata"]["name"].endswith("gateway")])

    def test_route(self):
        parent = {"name": "public", "namespace": "gateways"}
        route = self.release({"route": {"enabled": True, "parentRefs": [parent], "hostnames": ["m.example"], "annotations": {"a": "b"}}}).one("HTTPRoute", "r-baton-gateway")
        (rule,) = route["spec"]["rules"]
        self.assertEqual((route["spec"]["parentRefs"], route["spec"]["hostnames"], route["metadata"]["annotations"]), ([parent], ["m.example"], {"a": "b"}))
        self.assertEqual((rule["backendRefs"], rule["timeouts"]), ([{"name": "r-baton-gateway", "port": 8000}], {"request": "0s"}))

    def test_scraped(self):
        release = self.release(observability={"serviceMonitor": {"enabled": True}})
        selector = release.one("ServiceMonitor", "r-baton")["spec"]["selector"]["matchLabels"]
        self.assertLessEqual(selector.items(), release.one("Service", "r-baton-gateway-metrics")["metadata"]["labels"].items())

    def test_a_certificate_of_its_own(self):
        values = {"tls": {"enabled": True, "certManager": {"enabled": True, "issuerRef": {"name": "i"}}}, "route": {"hostnames": ["a.example"]}}
        release = Release(values)
        certificate = release.one("Certificate", "r-baton-gateway")["spec"]
        self.assertEqual(certificate["dnsNames"], ["r-baton-gateway", "r-baton-gateway.ns", "r-baton-gateway.ns.svc", "a.example"])
        self.assertEqual((certificate["usages"], certificate["issuerRef"]), (["server auth"], {"name": "i"}))
        secrets = {volume["name"]: volume["secret"]["secretName"] for volume in release.pod("gateway")["volumes"]}
        self.assertEqual(secrets["tls"], certificate["secretName"])
        self.assertNotEqual(secrets["tls"], secrets["ca"], "the fleet's key is no gateway's")
        self.assertEqual(release.flags("gateway")["--tls-cert"], "/etc/baton/tls/tls.crt")
        self.assertEqual([port.get("appProtocol") for port in release.one("Service", "r-baton-gateway")["spec"]["ports"]], ["https", None])
        named = Release({**values, "gateway": {"tls": {"existingSecret": "public"}}})
        self.assertEqual([one["metadata"]["name"] for one in named.all("Certificate")], ["r-baton"])
        self.assertEqual([one["metadata"]["name"] for one in Release({**values, "gateway": {"enabled": False}}).all("Certificate")], ["r-baton"])


class Route(unittest.TestCase):
    PARENT = {"name": "public", "namespace": "gateways"}

    def test_one_switch(self):
        for kind in ("GRPCRoute", "HTTPRoute"):
            release = Release({"route": {"enabled": True, "kind": kind, "parentRefs": [self.PARENT], "hostnames": ["m.example"], "annotations": {"a": "b"}}, "router": {"service": {"port": 443}}})
            route = release.one(kind, "r-baton")
            self.assertEqual(route["metadata"]["annotations"], {"a": "b"})
            self.assertEqual(route["spec"]["parentRefs"], [self.PARENT])
            self.assertEqual(route["spec"]["hostnames"], ["m.example"])
            (rule,) = route["spec"]["rules"]
            self.assertEqual(rule["backendRefs"], [{"name": "r-baton-gateway", "port": 443}])
            self.assertIn(443, [port["port"] for port in release.one("Service", "r-baton-gateway")["spec"]["ports"]])
            alone = Release({"route": {"enabled": True, "kind": kind, "parentRefs": [self.PARENT]}, "router": {"service": {"port": 443}}, "gateway": {"enabled": False}})
            self.assertEqual(alone.one(kind, "r-baton")["spec"]["rules"][0]["backendRefs"], [{"name": "r-baton", "port": 443}])
            self.assertEqual(rule.get("timeouts"), {"request": "0s"} if kind == "HTTPRoute" else None, "a long answer would be cut")
            service = release.one("Service", "r-baton")
            self.assertEqual(service["spec"]["ports"][0]["port"], 443)

    def test_off(self):
        self.assertFalse(Release().all("GRPCRoute") + Release().all("HTTPRoute"))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
