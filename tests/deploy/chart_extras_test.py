#!/usr/bin/env python3
"""Ways into the chart's objects for what has no key of its own: the same ones for every role, and common ones; wrong ones are refused by name."""
import sys
import unittest

from chart import CHART, HUB, Refused, Release, each

EVERY = ("router", "prefill", "decode", "node", "gateway")


def release(role, own, **values):
    """A release in which the role is there."""
    return Release({role: {**own, **({"enabled": True} if role in ("node", "gateway") else {})}, **values})


class Pods(unittest.TestCase):
    def test_containers_beside_a_roles_own(self):
        beside, before = {"name": "proxy", "image": "i"}, {"name": "wait", "image": "i"}
        for role in EVERY:
            one = release(role, {"extraContainers": [beside], "extraInitContainers": [before]})
            pod = one.pod(role)
            self.assertEqual([container["name"] for container in pod["containers"]], [role, "proxy"])
            self.assertEqual((pod["containers"][1], pod["initContainers"]), (beside, [before]))
            self.assertEqual(len(release(role, {}).pod(role)["containers"]), 1)

    def test_environment_from_elsewhere(self):
        more = [{"secretRef": {"name": "proxy"}}, {"prefix": "A_", "configMapRef": {"name": "c", "optional": True}}]
        for role in EVERY:
            self.assertEqual(release(role, {"extraEnvFrom": more}).container(role)["envFrom"], more)
            self.assertNotIn("envFrom", release(role, {}).container(role))

    def test_fields_of_pods_that_have_no_key(self):
        more = {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.1"]}, "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["a"]}], "shareProcessNamespace": True}
        for role in EVERY:
            pod = release(role, {"podSpec": more}).pod(role)
            self.assertLessEqual(more.items(), pod.items())
        pod = Release({"decode": {"hostNetwork": True, "podSpec": {"dnsPolicy": "Default"}}, "networkPolicy": {"enabled": False}}).pod("decode")
        self.assertEqual((pod["hostNetwork"], pod["dnsPolicy"]), (True, "Default"))

    def test_hooks(self):
        after = {"postStart": {"httpGet": {"port": 8000, "path": "/began"}}}
        before = {"preStop": {"exec": {"command": ["/usr/local/bin/baton", "version"]}}}
        for role in EVERY:
            wait = {"preStop": {"sleep": {"seconds": 5}}}
            self.assertEqual(release(role, {}).container(role)["lifecycle"], wait)
            self.assertEqual(release(role, {"lifecycle": after}).container(role)["lifecycle"], {**after, **wait})
            own = {"preStopSeconds": 0, "terminationGracePeriodSeconds": 400, "lifecycle": {**after, **before}}
            self.assertEqual(release(role, own).container(role)["lifecycle"], {**after, **before})
            self.assertNotIn("lifecycle", release(role, {"preStopSeconds": 0, "lifecycle": None}).container(role))

    def test_how_long_a_new_pod_has_to_stay_ready(self):
        for role in EVERY:
            spec = release(role, {"minReadySeconds": 900}).workload(role)["spec"]
            self.assertEqual(spec["minReadySeconds"], 900)
            if role != "node":  # The API wants more of it.
                self.assertGreater(spec["progressDeadlineSeconds"], 900 + 60, role)
            self.assertNotIn("minReadySeconds", release(role, {}).workload(role)["spec"])

    def test_how_fast_autoscalers_go(self):
        down = {"stabilizationWindowSeconds": 77, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}
        up = {"stabilizationWindowSeconds": 30, "policies": [{"type": "Percent", "value": 50, "periodSeconds": 60}]}
        two = [{"type": "Pods", "value": 2, "periodSeconds": 60}]
        cases = (
            ({}, {"scaleDown": down}),
            ({"scaleUp": up}, {"scaleUp": up, "scaleDown": down}),
            ({"scaleDown": {"policies": two}}, {"scaleDown": {**down, "policies": two}}),
            ({"scaleDown": {"selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}, {"scaleDown": {**down, "selectPolicy": "Disabled", "stabilizationWindowSeconds": 0}}),
        )
        for kind in ("hpa", "keda"):
            for behavior, wanted in cases:
                scaling = {"autoscaling": {"enabled": True, "kind": kind, "scaleDownSeconds": 77, "behavior": behavior}}
                model = {"name": "more", "source": "hostPath", "hostPath": {"path": "/m"}}
                one = Release({role: scaling for role in ("router", "prefill", "decode", "gateway")} | {"models": {"more": {"model": model}}})
                made = one.all("HorizontalPodAutoscaler" if kind == "hpa" else "ScaledObject")
                self.assertEqual(len(made), 6)
                for each in made:
                    spec = each["spec"] if kind == "hpa" else each["spec"]["advanced"]["horizontalPodAutoscalerConfig"]
                    self.assertEqual(spec["behavior"], wanted, each["metadata"]["name"])

    def test_where_all_pods_run(self):
        pool, zone = {"key": "pool", "operator": "Exists"}, {"key": "zone", "operator": "Exists"}
        common = {"nodeSelector": {"pool": "baton", "zone": "a"}, "tolerations": [pool], "affinity": {"nodeAffinity": {}}, "priorityClassName": "usual"}
        for role in EVERY:
            one = release(role, {}, **common)
            pods = [each["spec"]["template"]["spec"] for each in one.workloads()]
            for pod in pods:
                self.assertEqual({key: pod[key] for key in common}, common)
            own = {"nodeSelector": {"zone": "b"}, "tolerations": [zone], "affinity": {"podAffinity": {}}, "priorityClassName": "high"}
            pod = release(role, own, **common).pod(role)
            self.assertEqual(
                {key: pod[key] for key in common},
                {"nodeSelector": {"pool": "baton", "zone": "b"}, "tolerations": [pool, zone], "affinity": {"podAffinity": {}}, "priorityClassName": "high"},
            )
        for key in common:
            self.assertNotIn(key, Release().pod("decode"))

    def test_helm_test_runs_where_routers_run(self):
        own = {"nodeSelector": {"b": "c"}, "tolerations": [{"key": "x", "operator": "Exists"}], "runtimeClassName": "special", "affinity": {"podAntiAffinity": {}}}
        pod = Release({"nodeSelector": {"a": "b"}, "router": own}).one("Pod", "r-baton-test")["spec"]
        self.assertEqual((pod["nodeSelector"], pod["tolerations"], pod["runtimeClassName"]), ({"a": "b", "b": "c"}, own["tolerations"], "special"))
        self.assertNotIn("affinity", pod, "it would keep away from routers")

    def test_what_is_taken_away_is_not_missed(self):
        """null takes a default away, and values of an older chart have no new keys (--reuse-values)."""
        gone = {key: None for key in ("minReadySeconds", "lifecycle", "podSpec", "extraContainers", "extraInitContainers", "extraEnvFrom", "nodeSelector", "tolerations", "affinity")}
        common = {key: None for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "extraObjects")}
        keda = {"backend": None, "autoscaling": {"enabled": True, "kind": "keda", "behavior": None}}
        one = Release({**common, **{role: gone for role in ("router", "gateway")}, **{role: {**gone, "service": None, **keda} for role in ("prefill", "decode")}, "observability": {"prometheusAuth": None, "namespace": None}})
        self.assertEqual({role: sorted(one.pod(role)) for role in ("decode", "gateway")}, {role: sorted(Release().pod(role)) for role in ("decode", "gateway")})

    def test_pools_of_models_have_them_too(self):
        values = {"decode": {"extraContainers": [{"name": "proxy", "image": "i"}]}, "nodeSelector": {"a": "b"}}
        values["models"] = {"more": {"model": {"name": "more", "source": "hostPath", "hostPath": {"path": "/m"}}, "decode": {"podSpec": {"hostUsers": False}}}}
        pod = Release(values).pod("decode-more")
        self.assertEqual(([one["name"] for one in pod["containers"]], pod["hostUsers"], pod["nodeSelector"]), (["decode", "proxy"], False, {"a": "b"}))


class Services(unittest.TestCase):
    NAMES = {"router": "r-baton"}

    def test_labels_and_annotations(self):
        own = {"labels": {"l": "v"}, "annotations": {"k": "w"}}
        for role in EVERY:
            meta = release(role, {"service": own}).one("Service", self.NAMES.get(role, f"r-baton-{role}"))["metadata"]
            self.assertEqual((meta["labels"]["l"], meta["annotations"]), ("v", {"k": "w"}))

    def test_doors(self):
        spec = {"loadBalancerClass": "c", "externalTrafficPolicy": "Local", "loadBalancerSourceRanges": ["192.0.2.0/24"], "ipFamilyPolicy": "PreferDualStack"}
        for role in ("router", "gateway"):
            own = {"type": "LoadBalancer", "nodePort": 30001, "spec": spec, **({"grpcNodePort": 30002} if role == "gateway" else {})}
            one = release(role, {"service": own}, networkPolicy={"enabled": False})
            service = one.one("Service", self.NAMES.get(role, f"r-baton-{role}"))["spec"]
            self.assertLessEqual(spec.items(), service.items())
            self.assertEqual([port.get("nodePort") for port in service["ports"]], [30001, 30002][: len(service["ports"])])


class Objects(unittest.TestCase):
    def test_are_templates(self):
        more = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": '{{ include "baton.fullname" . }}-more'}, "data": {"model": "{{ .Values.model.name }}"}}
        text = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}-text\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: two}\n"
        one = Release({"extraObjects": [more, text]})
        self.assertEqual(one.one("ConfigMap", "r-baton-more")["data"], {"model": "baton-tiny"})
        self.assertEqual([secret["metadata"]["name"] for secret in one.all("Secret")], ["r-text", "two"])


class Observability(unittest.TestCase):
    def test_monitor(self):
        relabel, drop = [{"targetLabel": "cluster", "replacement": "one"}], [{"action": "drop", "regex": "process_.*", "sourceLabels": ["__name__"]}]
        monitor = {"enabled": True, "interval": "1m", "scrapeTimeout": "20s", "relabelings": relabel, "metricRelabelings": drop}
        for node in (False, True):
            endpoints = Release({"node": {"enabled": node}, "observability": {"serviceMonitor": monitor}}).one("ServiceMonitor", "r-baton")["spec"]["endpoints"]
            self.assertEqual(len(endpoints), 3 if node else 1)
            for one in endpoints:
                self.assertEqual((one["scrapeTimeout"], one["metricRelabelings"]), ("20s", drop))
                self.assertEqual((len(one["relabelings"]), one["relabelings"][-1:]), (4, relabel), "after the chart's own")

    def test_alerts_can_be_left_out(self):
        groups = lambda **more: Release({"observability": {"prometheusRule": {"enabled": True, **more}}}).one("PrometheusRule", "r-baton")["spec"]["groups"]
        rules = lambda groups: [rule for group in groups for rule in group["rules"]]
        wanted = [rule for rule in rules(groups()) if rule.get("alert") not in ("BatonPreemptions", "BatonOverload")]
        left = groups(disabled=["BatonPreemptions", "BatonOverload"])
        self.assertEqual(rules(left), wanted)
        self.assertEqual([group["name"] for group in left], [group["name"] for group in groups()])

    def test_a_namespace_of_their_own(self):
        on = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}}
        one = Release({"observability": {**on, "namespace": "monitoring"}})
        monitor, rule = one.one("ServiceMonitor", "r-baton-ns"), one.one("PrometheusRule", "r-baton-ns")
        self.assertEqual(monitor["spec"]["namespaceSelector"], {"matchNames": ["ns"]})
        maps = one.all("ConfigMap")
        self.assertEqual(len(maps), len(list((CHART / "files" / "dashboards").glob("*.json"))))
        for each in (monitor, rule, *maps):
            self.assertEqual(each["metadata"]["namespace"], "monitoring")
        # Fleets of one name in two namespaces meet there.
        other = Release({"observability": {**on, "namespace": "monitoring"}}, namespace="other")
        names = lambda release: {each["metadata"]["name"] for kind in ("ServiceMonitor", "PrometheusRule") for each in release.all(kind)}
        self.assertFalse(names(one) & names(other))
        self.assertNotIn("namespaceSelector", Release({"observability": on}).one("ServiceMonitor", "r-baton")["spec"])

    def test_a_prometheus_with_a_login(self):
        auth = {"modes": "bearer", "authenticationRef": {"name": "prometheus", "kind": "ClusterTriggerAuthentication"}}
        keda = {"autoscaling": {"enabled": True, "kind": "keda"}}
        one = Release({"router": keda, "prefill": keda, "decode": keda, "observability": {"prometheusAuth": auth}})
        for role in ("prefill", "decode"):
            for trigger in one.one("ScaledObject", f"r-baton-{role}")["spec"]["triggers"]:
                self.assertEqual((trigger["metadata"]["authModes"], trigger["authenticationRef"]), ("bearer", auth["authenticationRef"]))
        (cpu,) = one.one("ScaledObject", "r-baton-router")["spec"]["triggers"]
        self.assertNotIn("authenticationRef", cpu)
        self.assertNotIn("authenticationRef", str(Release({"decode": keda}).one("ScaledObject", "r-baton-decode")))


class Mistakes(unittest.TestCase):
    CASES = {
        "a container without an image": ({"extraContainers": [{"name": "a"}]}, ["image"]),
        "a container's number in its environment": ({"extraContainers": [{"name": "a", "image": "i", "env": [{"name": "A", "value": 1}]}]}, ["env"]),
        "a container of the role's name": ({"extraContainers": [{"name": "ROLE", "image": "i"}]}, ["ROLE.extraContainers", "another container"]),
        "a container twice": ({"extraContainers": [{"name": "a", "image": "i"}], "extraInitContainers": [{"name": "a", "image": "i"}]}, ["another container a"]),
        "an environment by name alone": ({"extraEnvFrom": [{"secretRef": "s"}]}, ["extraEnvFrom"]),
        "an environment of both": ({"extraEnvFrom": [{"secretRef": {"name": "s"}, "configMapRef": {"name": "c"}}]}, ["extraEnvFrom"]),
        "a field that the chart sets": ({"podSpec": {"containers": []}}, ["podSpec", "containers"]),
        "an unknown field": ({"podSpec": {"hostAlias": []}}, ["podSpec", "hostAlias"]),
        "an option of DNS that is a number": ({"podSpec": {"dnsConfig": {"options": [{"name": "ndots", "value": 2}]}}}, ["dnsConfig"]),
        "a hook of two kinds": ({"lifecycle": {"postStart": {"sleep": {"seconds": 1}, "exec": {"command": ["a"]}}}}, ["lifecycle.postStart"]),
        "a hook of no kind": ({"lifecycle": {"postStart": {}}}, ["lifecycle.postStart"]),
        "an unknown hook": ({"lifecycle": {"stopSignal": "SIGINT"}}, ["lifecycle", "stopSignal"]),
        "a hook in the place of the chart's own": ({"lifecycle": {"preStop": {"sleep": {"seconds": 9}}}}, ["ROLE.lifecycle.preStop", "ROLE.preStopSeconds", "set preStopSeconds to 0"]),
        "a hook of an unknown time": ({"preStopSeconds": 0, "lifecycle": {"preStop": {"sleep": {"seconds": 9}}}}, ["ROLE.lifecycle.preStop", "set ROLE.terminationGracePeriodSeconds"]),
        "a time before no pod counts": ({"minReadySeconds": -1}, ["minReadySeconds"]),
        "a Service's label of the chart's own": ({"service": {"labels": {"app.kubernetes.io/name": "x"}}}, ["ROLE.service.labels"]),
    }  # fmt: skip
    DOORS = {
        "a balancer's class without a balancer": ({"spec": {"loadBalancerClass": "c"}}, ["service.spec.loadBalancerClass", "LoadBalancer"]),
        "a node's port inside the cluster": ({"nodePort": 30000}, ["service.nodePort", "ClusterIP"]),
        "a policy for traffic from outside": ({"spec": {"externalTrafficPolicy": "Local"}}, ["service.spec.externalTrafficPolicy", "ClusterIP"]),
        "a Service's field that the chart sets": ({"spec": {"selector": {}}}, ["spec", "selector"]),
    }  # fmt: skip
    COMMON = {
        "an autoscaler's unknown direction": ({"router": {"autoscaling": {"behavior": {"scaleUpp": {}}}}}, ["behavior", "scaleUpp"]),
        "a direction without policies": ({"gateway": {"autoscaling": {"behavior": {"scaleUp": {"policies": []}}}}}, ["behavior.scaleUp.policies"]),
        "a policy half said": ({"prefill": {"autoscaling": {"behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 1}]}}}}}, ["scaleUp.policies.0", "periodSeconds"]),
        "a window that the API refuses": ({"decode": {"autoscaling": {"scaleDownSeconds": 7200}}}, ["decode.autoscaling.scaleDownSeconds", "3,600"]),
        "a scrape longer than its interval": ({"observability": {"serviceMonitor": {"interval": "15s", "scrapeTimeout": "1m"}}}, ["scrapeTimeout", "interval"]),
        "a way to sign in with nothing": ({"observability": {"prometheusAuth": {"modes": "basic"}}}, ["prometheusAuth.authenticationRef"]),
        "an unknown way to sign in": ({"observability": {"prometheusAuth": {"modes": "oauth", "authenticationRef": {"name": "a"}}}}, ["modes"]),
        "a reference without a name": ({"observability": {"prometheusAuth": {"authenticationRef": {"kind": "TriggerAuthentication"}}}}, ["authenticationRef"]),
        "an alert that there is not": ({"observability": {"prometheusRule": {"enabled": True, "disabled": ["BatonPreemption"]}}}, ["prometheusRule.disabled", "BatonPreemption", "runbook"]),
        "an object without a kind": ({"extraObjects": [{"metadata": {"name": "a"}}]}, ["extraObjects"]),
        "objects by name": ({"extraObjects": {"a": {}}}, ["extraObjects"]),
        "a worker's Service of another type": ({"decode": {"service": {"type": "LoadBalancer"}}}, ["type"]),
        "another model's download twice": ({"models": {"more": {"model": {**HUB, "name": "more"}}}, "router": {"extraContainers": [{"name": "model-more", "image": "i"}]}}, ["router.extraContainers", "another container model-more"]),
        "a plugin's container twice": ({**each({"gpus": 1}), "link": {"name": "nccl", "plugin": {"image": "p"}}, "decode": {"gpus": 1, "extraInitContainers": [{"name": "nccl-plugin", "image": "i"}]}}, ["decode.extraInitContainers", "another container nccl-plugin"]),
        "a download's container twice": ({"model": HUB, "decode": {"extraInitContainers": [{"name": "model", "image": "i"}]}}, ["decode.extraInitContainers", "another container model"]),
    }  # fmt: skip

    def refused(self, make, words):
        with self.assertRaises(Refused) as refused:
            make()
        for word in words:
            self.assertIn(word, str(refused.exception).replace("/", "."))

    def test_of_each_role(self):
        for role in EVERY:
            for what, (own, words) in self.CASES.items():
                with self.subTest(what, role=role):
                    own = {key: [{**one, "name": one["name"].replace("ROLE", role)} if "name" in one else one for one in value] if isinstance(value, list) else value for key, value in own.items()}
                    self.refused(lambda: release(role, own), [word.replace("ROLE", role).replace("/", ".") for word in words])

    def test_of_doors(self):
        for role in ("router", "gateway"):
            for what, (own, words) in self.DOORS.items():
                with self.subTest(what, role=role):
                    self.refused(lambda: release(role, {"service": own}), words)

    def test_of_all(self):
        for what, (values, words) in self.COMMON.items():
            with self.subTest(what):
                self.refused(lambda: Release(values), words)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
