#!/usr/bin/env python3
"""The images, without an engine: their root folder is made by the same script, and every command of the chart's pods runs in it as a pod
would: that root read-only, user 65532, no capability, no privilege to gain. Flags, probes, signals and exit codes are the chart's.

Sandboxes are bubblewrap's. Where the machine grants no user namespaces (a container, a chroot), root changes into the folder instead: the
same root, user and privileges, with ownership in place of a read-only mount. The test says which it was."""
import collections
import http.client
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from chart import Release
from relay import BIN, MODEL, ROOT, Process, until


def boxed(root, command, namespaces, environment):
    """The command line that runs it as a container would."""
    if not namespaces:
        box = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), "/usr/bin/setpriv", "--no-new-privs", "/usr/sbin/chroot"]
        return [str(part) for part in [*box, "--userspec=65532:65532", "--groups=65532", root, *command]]
    box = ["bwrap", "--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-user", "--unshare-pid"]
    box += ["--unshare-ipc", "--unshare-uts", "--uid", "65532", "--gid", "65532", "--cap-drop", "ALL", "--die-with-parent", "--clearenv"]
    for name, value in environment.items():
        box += ["--setenv", name, value]
    # Signals reach the process itself: it is no child of a shell.
    return [str(part) for part in [*box, "--as-pid-1", *command]]


class Containers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name, "root")
        if made := os.environ.get("BATON_IMAGE_ROOT"):  # by deploy/container/rehearse, model and all
            shutil.copytree(made, cls.root, symlinks=True)
        else:
            done = subprocess.run([ROOT / "deploy" / "container" / "collect", BIN, cls.root], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            print(done.stdout.strip())
            for model in (MODEL, MODEL.parent / "baton-guard"):
                shutil.copytree(model, cls.root / "opt" / "baton" / "models" / model.name)
        os.chmod(folder.name, 0o755)
        for mount in ("proc", "dev"):  # as engines make them
            (cls.root / mount).mkdir(exist_ok=True)
        # Every role has an address of its own, as every pod has; which ones is drawn, so that two runs don't meet.
        seed = random.randrange(1 << 32)
        draw = random.Random(seed)
        net = f"127.{draw.randint(1, 254)}.{draw.randint(0, 254)}"
        print(f"seed {seed}: addresses {net}.*")
        cls.address = {"router": f"{net}.1", "prefill": f"{net}.2", "decode": f"{net}.3", "node": f"{net}.4", "gateway": f"{net}.5", "decode-guard": f"{net}.6"}
        names = {"r-baton.ns.svc": "router", "r-baton-prefill.ns.svc": "prefill", "r-baton-decode.ns.svc": "decode", "r-baton-node.ns.svc": "node",
                 "r-baton-decode-guard.ns.svc": "decode-guard", "r-baton-router-grpc.ns.svc": "router"}
        (cls.root / "etc" / "hosts").write_text("".join(f"{cls.address[role]} {name}\n" for name, role in names.items()))
        cls.release = Release({"router": {"queueSeconds": 5}}, preset="laptop")
        cls.namespaces = subprocess.run(cls.sandbox(["/usr/local/bin/baton", "version"], True), capture_output=True).returncode == 0
        print("sandbox:", "bubblewrap" if cls.namespaces else "chroot, as this machine grants no user namespaces")

    @classmethod
    def sandbox(cls, command, namespaces=None):
        return boxed(cls.root, command, cls.namespaces if namespaces is None else namespaces, {"POD_NAME": "pod-0"})

    def start(self, role):
        container = self.release.container(role)
        flags = [flag.replace("[::]", self.address[role]).replace("$(POD_NAME)", "pod-0").replace("$(LINK_DOMAIN)", "node-0") for flag in container["args"]]
        process = Process(self.sandbox([*container["command"], *flags]))
        self.addCleanup(process.stop)
        process.wait_for(r"Ctrl-C ends the service" if role == "node" else r"^ready (grpc|http)=")
        self.started[role] = process
        return process

    def health(self, role, service=""):
        """As the kubelet's probe asks."""
        server = f"{self.address[role]}:{self.release.container(role)['readinessProbe']['grpc']['port']}"
        done = subprocess.run(self.sandbox(["/usr/local/bin/baton", "health", "--server", server, "--service", service]), capture_output=True, text=True)
        return done.stdout.strip() or done.stderr.strip()

    def until_health(self, role, wanted, service=""):
        """A probe asks again and again, and so does this: workers are ready when a router has seen them, which takes a moment."""
        answers = []

        def ask():
            answers.append(self.health(role, service))
            return answers[-1] == wanted

        story = lambda: f"{role} never said {wanted}, but {collections.Counter(answers)}\n" + "\n".join(p.said() for p in self.started.values())
        until(ask, story)

    def inner_pid(self, process):
        """Of the container's first process, seen from here."""
        if not self.namespaces:
            return process.popen.pid
        children = pathlib.Path(f"/proc/{process.popen.pid}/task/{process.popen.pid}/children").read_text().split()
        self.assertEqual(len(children), 1, process.said())
        return int(children[0])

    def test_a_root_without_shell(self):
        there = {path.name for path in self.root.rglob("*") if path.is_file()}
        self.assertLessEqual({"baton", "baton-lab", "baton-router", "baton-prefill", "baton-decode", "baton-gateway", "ca-certificates.crt"}, there)
        self.assertFalse(there & {"sh", "bash", "dash", "busybox", "apt", "dpkg", "python3", "perl"})

    def test_every_library_is_there_and_listed(self):
        for name in ("baton", "baton-lab", "baton-router", "baton-prefill", "baton-decode", "baton-gateway"):
            done = subprocess.run(self.sandbox([f"/usr/local/bin/{name}", "--help"]), capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
        listed = list((self.root / "var" / "lib" / "dpkg" / "status.d").iterdir())
        self.assertTrue(any(path.name.startswith("libgrpc") for path in listed))
        for path in listed:
            self.assertRegex(path.read_text(), r"(?m)^Version: ")
        # A list of what is inside (SBOM) needs every part by name and version: Debian's by package, Rust's by the lock file.
        names = {path.name for path in listed}
        libraries = {f"/{path.relative_to(self.root)}" for path in (self.root / "usr" / "lib").rglob("*.so*")}
        self.assertGreater(len(libraries), 20)
        # Packages know a file under /lib by either name.
        known = subprocess.run(["dpkg-query", "-S", *libraries, *(path.removeprefix("/usr") for path in libraries)], capture_output=True, text=True)
        owners = [line.split(": ") for line in known.stdout.splitlines() if not line.startswith("diversion")]
        listed_files = {path if path.startswith("/usr") else f"/usr{path}" for package, path in owners if package.split(":")[0] in names}
        self.assertEqual(libraries - listed_files, set(), "of no package that is listed")
        self.assertIn('name = "tokenizers"', (self.root / "usr" / "share" / "doc" / "baton" / "Cargo.lock").read_text())

    def test_the_whole_relay(self):
        self.started = {}
        decode, prefill = self.start("decode"), self.start("prefill")
        router = self.start("router")
        everything = {"decode": decode, "prefill": prefill, "router": router}

        # Their users.
        status = pathlib.Path(f"/proc/{self.inner_pid(router)}/status").read_text()
        self.assertEqual(re.search(r"NoNewPrivs:\s+(\d)", status)[1], "1")
        self.assertEqual(int(re.search(r"CapEff:\s+(\w+)", status)[1], 16), 0)

        # Probes: startup and liveness ask for "live", readiness for all.
        for role in everything:
            self.until_health(role, "SERVING", "live")
        for role in everything:
            self.until_health(role, "SERVING")

        self.ask()
        gateway = self.start("gateway")
        probe = lambda path: self.http(path)[0]
        until(lambda: probe("/ready") == 200, lambda: f"a ready gateway: {gateway.said()}")
        chat = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}
        status, answer = self.http("/v1/chat/completions", chat)
        self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 4), answer)

        # Without decode workers the router lives, and is not ready: it is no reason to restart it.
        self.end(decode)
        self.until_health("router", "NOT_SERVING")
        self.assertEqual(self.health("router", "live"), "SERVING")
        self.assertEqual((probe("/ready"), probe("/health")), (503, 200))

        # SIGTERM to the first process ends it in order.
        self.end(gateway)
        self.end(router)
        self.end(prefill)

    def test_a_classifier_beside_the_model(self):
        """As `models` and `moderation` of the chart have it: what its routers read and its workers load."""
        guard = {"model": {"name": "guard", "source": "image", "image": {"path": "/opt/baton/models/baton-guard"}}, "classifier": "auto"}
        pool = {"prefill": {"enabled": False}, "decode": {"threads": 1, "kvMemory": "64MiB"}}
        self.release = Release({"models": {"guard": guard | pool}, "moderation": {"policy": "block", "input": True}}, preset="laptop")
        folder = self.root / "etc" / "baton" / "models"
        folder.mkdir(parents=True)
        self.addCleanup(shutil.rmtree, folder)
        for name, text in self.release.one("ConfigMap", "r-baton-models")["data"].items():
            (folder / name).write_text(text)
        self.started = {}
        for role in ("decode", "prefill", "decode-guard", "router", "gateway"):
            self.start(role)
        until(lambda: self.http("/ready")[0] == 200, "a ready gateway")
        judged = lambda: self.http("/v1/moderations", {"input": ["The fox is glad.", "I will break your arm."]})
        until(lambda: judged()[0] == 200, lambda: f"a verdict, and not {judged()}")
        self.assertEqual([one["flagged"] for one in judged()[1]["results"]], [False, True])
        # The rule holds for every tenant, whether a request asks or not.
        chat = lambda text: self.http("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 4})[1]["choices"][0]["finish_reason"]
        self.assertEqual(chat("I will break your arm."), "content_filter")
        self.assertNotEqual(chat("The fox is glad."), "content_filter")

    def http(self, path, body=None):
        """Status and answer of the gateway, as the kubelet's probes and clients ask it."""
        (port,) = [port["containerPort"] for port in self.release.container("gateway")["ports"] if port["name"] == "http"]
        connection = http.client.HTTPConnection(self.address["gateway"], port, timeout=60)
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text if body is None else json.loads(text)

    def ask(self):
        """`helm test`, command by command."""
        pod = self.release.one("Pod", "r-baton-test")["spec"]
        for container in pod["initContainers"] + pod["containers"]:
            done = subprocess.run(self.sandbox([*container["command"], *container["args"]]), capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{done.args}\n{done.stdout}{done.stderr}" + "\n".join(p.said() for p in self.started.values()))

    def test_a_nodes_pod(self):
        """Several workers in one container: routers find each of them, and one that dies is started again while the pod stays ready."""
        if not self.namespaces:
            self.skipTest("a supervisor finds its programs by /proc, which a bare chroot lacks")
        small = {"enabled": True, "prefillWorkers": 1, "decodeWorkers": 2, "kvMemory": "64MiB", "threads": 1}
        self.release = Release({"node": small, "router": {"queueSeconds": 5}}, preset="laptop")
        self.started = {}
        node, router = self.start("node"), self.start("router")
        self.until_health("node", "SERVING", "live")
        self.until_health("node", "SERVING")
        self.until_health("router", "SERVING")
        self.ask()
        supervisor = self.inner_pid(node)
        workers = lambda: {
            int(pid): pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            for pid in pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        }
        names = {command[command.index("--worker-id") + 1]: pid for pid, command in workers().items()}
        self.assertEqual(set(names), {"pod-0-prefill-0", "pod-0-decode-0", "pod-0-decode-1"})
        os.kill(names["pod-0-decode-0"], signal.SIGKILL)
        self.ask()
        self.assertEqual(self.health("node"), "SERVING")
        again = lambda: any("pod-0-decode-0" in command and pid != names["pod-0-decode-0"] for pid, command in workers().items())
        until(again, lambda: f"a new decode-0: {node.said()}")
        self.end(node)
        self.until_health("router", "NOT_SERVING")
        self.end(router)

    def end(self, process):
        os.kill(self.inner_pid(process), signal.SIGTERM)
        until(lambda: process.popen.poll() is not None, lambda: f"an end after SIGTERM: {process.said()}")
        self.assertEqual(process.popen.returncode, 0, process.said())

    def test_a_bad_flag_says_so(self):
        done = subprocess.run(self.sandbox(["/usr/local/bin/baton-router", "--modell=x"]), capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--model", done.stdout + done.stderr)


PROBE = """#include <dlfcn.h>
#include <stdio.h>
int main(int count, char** names) {
  for (int i = 1; i < count; ++i) {
    if (dlopen(names[i], RTLD_NOW) == 0) {
      printf("%s\\n", dlerror());
      return 1;
    }
  }
  return 0;
}
"""


class GpuImage(unittest.TestCase):
    """What Dockerfile.cuda adds to the root: libraries that nothing names and NCCL loads at run time, and where the driver's are looked for. The
    binaries are the CPU's: what they link is the other test's."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        cls.root = pathlib.Path(folder.name, "root")
        done = subprocess.run([ROOT / "deploy" / "container" / "collect", BIN, cls.root, "--gpu"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        for mount in ("proc", "dev"):
            (cls.root / mount).mkdir(exist_ok=True)
        cls.build(PROBE, cls.root / "usr" / "local" / "bin" / "probe")
        text = (ROOT / "deploy" / "container" / "Dockerfile.cuda").read_text().replace("\\\n", " ")
        cls.environment = dict(pair.split("=", 1) for line in text.splitlines() if line.startswith("ENV ") for pair in line.removeprefix("ENV ").split())
        cls.namespaces = subprocess.run(boxed(cls.root, ["/usr/local/bin/probe"], True, {}), capture_output=True).returncode == 0

    @staticmethod
    def build(source, target, *flags):
        subprocess.run(["cc", "-x", "c", "-", "-o", target, *flags], input=source, text=True, check=True)
        os.chmod(target, 0o755)

    def load(self, *names, environment=None):
        """What the loader says against it; nothing if it loads."""
        environment = self.environment if environment is None else environment
        done = subprocess.run(boxed(self.root, ["/usr/local/bin/probe", *names], self.namespaces, environment), capture_output=True, text=True)
        return done.stdout if done.returncode == 1 else done.stderr

    def test_what_nccl_loads_for_rdma(self):
        for name in ("libibverbs.so.1", "libmlx5.so.1", "libefa.so.1", "librdmacm.so.1"):
            self.assertEqual(self.load(name), "", name)
        self.assertIn("libabsent", self.load("libabsent.so.1"), "the probe can fail")

    def test_every_provider_of_verbs(self):
        """libibverbs loads them by the names that it finds in its folder of drivers."""
        drivers = sorted(path.stem for path in (self.root / "etc" / "libibverbs.d").glob("*.driver"))
        self.assertLessEqual({"mlx5", "efa", "bnxt_re"}, set(drivers))
        (home,) = (self.root / "usr" / "lib").glob("*/libibverbs")
        for driver in drivers:
            (provider,) = home.glob(f"lib{driver}-rdmav*.so")
            self.assertEqual(self.load("libibverbs.so.1", f"/{provider.relative_to(self.root)}"), "", driver)

    def test_the_drivers_libraries_are_found_where_nodes_have_them(self):
        """Debian and Ubuntu; RHEL, Amazon Linux and driver containers; GKE. And a plugin where the chart mounts it."""
        (debian,) = (path.parent.relative_to(self.root) for path in (self.root / "usr" / "lib").glob("*/libc.so.6"))
        for folder in (str(debian), "usr/lib64", "usr/local/nvidia/lib64", "opt/nccl-plugin/lib"):
            place = self.root / folder / "libcuda.so.1"
            place.parent.mkdir(parents=True, exist_ok=True)
            self.build("int cuInit(unsigned flags) { return (int)flags; }", place, "-shared", "-fPIC")
            self.assertEqual(self.load("libcuda.so.1"), "", folder)
            # Without the image's environment the toolkit's cache is needed, which it makes by this root's ld.so.conf.
            subprocess.run(["/sbin/ldconfig", "-r", self.root], capture_output=True, check=True)
            self.assertEqual(self.load("libcuda.so.1", environment={}), "", f"{folder}, by the cache")
            place.unlink()
        subprocess.run(["/sbin/ldconfig", "-r", self.root], capture_output=True, check=True)
        self.assertIn("libcuda.so.1", self.load("libcuda.so.1"), "the image has none of its own")

    def test_the_toolkit_knows_the_system(self):
        for name in ("etc/ld.so.conf", "etc/ld.so.cache", "etc/debian_version"):
            self.assertGreater((self.root / name).stat().st_size, 0, name)

    def test_gpus_and_driver(self):
        self.assertNotIn("NVIDIA_VISIBLE_DEVICES", self.environment, "a pod without GPUs would get all of the node's")
        self.assertRegex(self.environment["NVIDIA_REQUIRE_CUDA"], r"^cuda>=13\.")

    def test_it_is_listed(self):
        listed = {path.name for path in (self.root / "var" / "lib" / "dpkg" / "status.d").iterdir()}
        self.assertLessEqual({"libibverbs1", "ibverbs-providers", "librdmacm1", "libnl-3-200", "libnl-route-3-200"}, listed)
        there = {path.name for path in self.root.rglob("*") if path.is_file()}
        self.assertFalse(there & {"sh", "bash", "dash", "ldconfig"})



if __name__ == "__main__":
    unittest.main()
