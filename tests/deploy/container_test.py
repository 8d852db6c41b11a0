#!/usr/bin/env python3
"""The images, without an engine: their root folder is made by the same script, and every command of the chart's pods runs in it as a pod
would: that root read-only, user 65532, no capability, no privilege to gain. Flags, probes, signals and exit codes are the chart's.

Sandboxes are bubblewrap's. Where the machine grants no user namespaces (a container, a chroot), root changes into the folder instead: the
same root, user and privileges, with ownership in place of a read-only mount. The test says which it was."""
import collections
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
            shutil.copytree(MODEL, cls.root / "opt" / "baton" / "models" / "baton-tiny")
        os.chmod(folder.name, 0o755)
        for mount in ("proc", "dev"):  # as engines make them
            (cls.root / mount).mkdir(exist_ok=True)
        # Every role has an address of its own, as every pod has; which ones is drawn, so that two runs don't meet.
        seed = random.randrange(1 << 32)
        draw = random.Random(seed)
        net = f"127.{draw.randint(1, 254)}.{draw.randint(0, 254)}"
        print(f"seed {seed}: addresses {net}.*")
        cls.address = {"router": f"{net}.1", "prefill": f"{net}.2", "decode": f"{net}.3"}
        names = {"r-baton.ns.svc": "router", "r-baton-prefill.ns.svc": "prefill", "r-baton-decode.ns.svc": "decode"}
        (cls.root / "etc" / "hosts").write_text("".join(f"{cls.address[role]} {name}\n" for name, role in names.items()))
        cls.release = Release(preset="laptop")
        cls.namespaces = subprocess.run(cls.sandbox(["/usr/local/bin/baton", "version"], True), capture_output=True).returncode == 0
        print("sandbox:", "bubblewrap" if cls.namespaces else "chroot, as this machine grants no user namespaces")

    @classmethod
    def sandbox(cls, command, namespaces=None):
        """The command line that runs it as a container would."""
        if not (cls.namespaces if namespaces is None else namespaces):
            box = ["setpriv", "--no-new-privs", "chroot", "--userspec=65532:65532", "--groups=65532", cls.root]
            return [str(part) for part in [*box, *command]]
        box = ["bwrap", "--ro-bind", cls.root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-user", "--unshare-pid"]
        box += ["--unshare-ipc", "--unshare-uts", "--uid", "65532", "--gid", "65532", "--cap-drop", "ALL", "--die-with-parent", "--clearenv"]
        # Signals reach the process itself: it is no child of a shell.
        return [str(part) for part in [*box, "--setenv", "POD_NAME", "pod-0", "--as-pid-1", *command]]

    def start(self, role):
        container = self.release.container(role)
        flags = [flag.replace("0.0.0.0", self.address[role]).replace("$(POD_NAME)", "pod-0") for flag in container["args"]]
        process = Process(self.sandbox([*container["command"], *flags]))
        self.addCleanup(process.stop)
        process.wait_for(r"^ready grpc=")
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
        self.assertLessEqual({"baton", "baton-router", "baton-prefill", "baton-decode", "ca-certificates.crt"}, there)
        self.assertFalse(there & {"sh", "bash", "dash", "busybox", "apt", "dpkg", "python3", "perl"})

    def test_every_library_is_there_and_listed(self):
        for name in ("baton", "baton-router", "baton-prefill", "baton-decode"):
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

        # Who they are.
        status = pathlib.Path(f"/proc/{self.inner_pid(router)}/status").read_text()
        self.assertEqual(re.search(r"NoNewPrivs:\s+(\d)", status)[1], "1")
        self.assertEqual(int(re.search(r"CapEff:\s+(\w+)", status)[1], 16), 0)

        # Probes: startup and liveness ask for "live", readiness for all.
        for role in everything:
            self.until_health(role, "SERVING", "live")
        for role in everything:
            self.until_health(role, "SERVING")

        # `helm test`, command by command.
        pod = self.release.one("Pod", "r-baton-test")["spec"]
        for container in pod["initContainers"] + pod["containers"]:
            done = subprocess.run(self.sandbox([*container["command"], *container["args"]]), capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{done.args}\n{done.stdout}{done.stderr}" + "\n".join(p.said() for p in everything.values()))

        # Without decode workers the router lives, and is not ready: it is no reason to restart it.
        self.end(decode)
        self.until_health("router", "NOT_SERVING")
        self.assertEqual(self.health("router", "live"), "SERVING")

        # SIGTERM to the first process ends it in order.
        self.end(router)
        self.end(prefill)

    def end(self, process):
        os.kill(self.inner_pid(process), signal.SIGTERM)
        until(lambda: process.popen.poll() is not None, lambda: f"an end after SIGTERM: {process.said()}")
        self.assertEqual(process.popen.returncode, 0, process.said())

    def test_a_bad_flag_says_so(self):
        done = subprocess.run(self.sandbox(["/usr/local/bin/baton-router", "--modell=x"]), capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--model", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
