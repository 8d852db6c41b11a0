"""A real kube-apiserver over a real etcd, for tests. There is no controller and no node: objects are checked, defaulted and stored by the
API as in a cluster, and then just stand there. Also helm against it, and plain HTTP for what helm can't ask."""
import json
import os
import pathlib
import random
import ssl
import subprocess
import urllib.error
import urllib.request

import yaml
from chart import CHART, HELM, LOADER, ROOT
from relay import Process, until

TOOLS = ROOT / "build" / "tools"
TOKEN = "for-a-test-on-loopback"


class Apiserver:
    def __init__(self, folder):
        folder = self.folder = pathlib.Path(folder)
        # Neither program can say which port the system chose, so it is the address that is drawn.
        seed = random.randrange(1 << 32)
        draw = random.Random(seed)
        host = f"127.{draw.randint(1, 254)}.{draw.randint(0, 254)}.1"
        print(f"seed {seed}: address {host}")
        self.processes = []
        etcd = f"http://{host}:2379"
        # Nothing here has to outlive a crash.
        self.start("etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
                   f"--listen-peer-urls=http://{host}:2380", f"--initial-advertise-peer-urls=http://{host}:2380",
                   f"--initial-cluster=default=http://{host}:2380", "--unsafe-no-fsync")  # fmt: skip
        key = folder / "accounts.pem"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f"{TOKEN},admin,1,system:masters\n")
        self.start(TOOLS / "bin" / "kube-apiserver", f"--etcd-servers={etcd}", f"--bind-address={host}", "--secure-port=6443", f"--cert-dir={folder}/certs",
                   # Endpoints may not be on loopback, and they are not used.
                   "--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/16",
                   "--service-account-issuer=https://accounts.test", f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
                   f"--token-auth-file={folder}/tokens.csv", "--authorization-mode=RBAC")  # fmt: skip
        self.address = f"https://{host}:6443"
        self.tls = ssl.create_default_context()
        self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE  # its own certificate, on loopback
        until(self.ready, self.story)
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.address, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }  # fmt: skip
        (folder / "kubeconfig").write_text(json.dumps(config))
        self.resources = {}

    def start(self, *command):
        self.processes.append(Process(command, stream="stderr"))

    def story(self):
        return "\n".join(process.said() for process in self.processes)

    def ready(self):
        for process in self.processes:
            if process.popen.poll() is not None:
                raise AssertionError(self.story())
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except urllib.error.URLError:
            return False

    def stop(self):
        for process in reversed(self.processes):
            process.stop()

    def ask(self, method, path, body=None, kind="application/json", **parameters):
        """(status, the answer as JSON or text, warnings)"""
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind, "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.address}{path}?{query}", data, headers, method=method)
        try:
            answer = urllib.request.urlopen(request, context=self.tls, timeout=60)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            text = answer.read().decode()
            is_json = answer.headers.get("Content-Type", "").startswith("application/json")
            return answer.status, json.loads(text) if is_json else text, answer.headers.get_all("Warning") or []

    def path(self, one, namespace):
        """Where objects of this kind live, as the API's discovery says."""
        version = one["apiVersion"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self.resources:
            self.resources[version] = self.ask("GET", base)[1]["resources"]
        resource = next(r for r in self.resources[version] if r["kind"] == one["kind"] and "/" not in r["name"])
        return f"{base}/namespaces/{namespace}/{resource['name']}" if resource["namespaced"] else f"{base}/{resource['name']}"

    def create(self, one, namespace="ns", **parameters):
        status, answer, warnings = self.ask("POST", self.path(one, namespace), one, **parameters)
        return status, answer, warnings

    def must_create(self, one, namespace="ns"):
        status, answer, _ = self.create(one, namespace)
        assert status == 201, answer

    def namespace(self, name, level):
        labels = {"pod-security.kubernetes.io/enforce": level}
        self.must_create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        # A controller's work in a cluster.
        self.must_create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}, name)

    def take_crds(self):
        """The kinds of the operators that the chart can speak to."""
        names = []
        for path in sorted((TOOLS / "crds").glob("*.yaml")):
            crd = next(one for one in yaml.load_all(path.read_text(), Loader=LOADER) if one)
            self.must_create(crd)
            names.append(crd["metadata"]["name"])
        base = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        established = lambda crd: any(c["type"] == "Established" and c["status"] == "True" for c in crd.get("status", {}).get("conditions", []))
        until(lambda: all(established(self.ask("GET", f"{base}/{name}")[1]) for name in names), "kinds that the API serves")
        return names

    def helm(self, *command):
        home = self.folder / "home"
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(self.folder / "kubeconfig")}
        return subprocess.run([HELM, *map(str, command), "--namespace", "ns"], env=environment, capture_output=True, text=True)

    def release(self, verb, name, values=None, *more):
        """helm install or upgrade of the chart; `values` is a file."""
        return self.helm(verb, name, CHART, *(["--values", values] if values else []), *more)
