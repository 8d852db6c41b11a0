"""Services with faults for each alert, which alerts_live_test.py plays: what is done to real processes, which alerts it has to cause, and which may come with it."""
import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import threading
import time
import urllib.request

import grpc
from faults import Wire, frozen, repeated, stutter
from relay import BIN, MODEL, Process

GUARD = MODEL.parent / "baton-guard"


class Scene:
    """A fault, as a context manager's function; the alerts that it has to cause, each with labels that they have; and those that may come with it, each with the reason."""

    def __init__(self, name, fault, fires=None, may=None):
        self.name, self.fault, self.fires, self.may = name, fault, fires or {}, may or {}


# Words for what comes with a fault.
WAITS = {f"Baton{what}Burn{speed}": "answers that waited for a worker are slow ones" for what in ("Ttft", "Tpot") for speed in ("Fast", "Slow")}
UNSCRAPED = {"BatonTargetDown": "a process that stands still tells Prometheus nothing"}
GONE = {"BatonTargetDown": "Prometheus asks a process that has ended until it has read its list again"}
FAILS = {
    "BatonErrorRatio": "requests end at their deadlines",
    "BatonGatewayErrors": "those of HTTP do, too",
}
MINE = {"model": "baton-tiny"}
LOSES = {
    "BatonHandoffFailures": "hand-offs under way end with their worker",
    "BatonWatchReconnects": "so do watch streams, again and again",
}
SLOW = {**UNSCRAPED, **WAITS, **LOSES, "BatonNoDecodeWorker": "both are silent for a moment", "BatonErrorRatio": "some miss their deadlines", "BatonQueueBacklog": "requests wait for a worker", "BatonGatewayErrors": "those of HTTP, too", "BatonLinkSlow": "what is shipped is taken late"}


def bench(server, *more):
    return Process([BIN / "baton", "bench", "--server", server, "--duration", "3h", "--max-in-flight", 12, "--timeout", "15s", *more])


class Service:
    """A release that Prometheus scrapes, with what runs for it."""

    def __init__(self, release, folder):
        self.release = release
        self.folder = pathlib.Path(folder, release)
        self.folder.mkdir()
        self.ends = contextlib.ExitStack()
        self.targets = []
        self.healthy = Scene("no fault, for longer than any alert waits", lambda: self.passes(95))
        self.scenes = [self.healthy]

    def scrape(self, targets):
        """Whoever is to be scraped, as targets.json of `baton serve` names them."""
        self.targets = [{"targets": one["targets"], "labels": {**one["labels"], "release": self.release}} for one in targets]
        draft = self.folder / "targets.tmp"
        draft.write_text(json.dumps(self.targets))
        draft.rename(self.folder / "targets.json")

    def run(self, process):
        self.ends.callback(process.stop)
        return process

    @contextlib.contextmanager
    def while_running(self, process):
        try:
            yield process
        finally:
            process.stop()

    def keep_asking(self, ask, pause, clients=1):
        """Clients that call ask() again and again, whatever comes of it."""
        ended = threading.Event()

        def go():
            while not ended.wait(pause):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    ask()

        for _ in range(clients):
            thread = threading.Thread(target=go)
            thread.start()
            self.ends.callback(thread.join)
        self.ends.callback(ended.set)

    @contextlib.contextmanager
    def passes(self, seconds):
        time.sleep(seconds)
        yield


class Served(Service):
    """`baton serve`, as most people start it."""

    def __init__(self, release, folder, prefill, decode, *more):
        super().__init__(release, folder)
        command = [BIN / "baton", "serve", "--model", MODEL, "--prefill", prefill, "--decode", decode, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        command += ["--announce", self.folder / "announced.json", "--observability", self.folder / "observability", "--threads", 1, "--json", *more]
        self.process = self.run(Process(command))
        self.announced = json.loads(self.process.wait_for(r"^\{.*")[0])
        self.router = self.announced["router"]
        self.http = self.announced.get("http")
        self.scrape(json.loads((self.folder / "observability" / "targets.json").read_text()))

    def pid(self, name):
        """Of the process that has this name now: one that died has been started again."""
        said = lambda pid: pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        own = self.process.popen.pid
        for task in pathlib.Path(f"/proc/{own}/task").iterdir():
            for child in (task / "children").read_text().split():
                with contextlib.suppress(OSError):
                    words = said(child)
                    if f"--worker-id\0{name}\0" in "\0".join(words) or words[0].endswith(f"/baton-{name}"):
                        return int(child)
        raise AssertionError(f"{name} does not run: {self.process.said()}")

    def kill(self, name):
        os.kill(self.pid(name), signal.SIGKILL)

    def post(self, path, body, timeout=30):
        request = urllib.request.Request(f"http://{self.http}{path}", data=json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read()


class Main(Served):
    """Two workers of each kind, a classifier, a gateway, a ledger."""

    def __init__(self, folder):
        more = ["--http", "127.0.0.1:0", "--moderation-model", GUARD, "--ledger", pathlib.Path(folder, "ledger"), "--kv-memory", "64MiB"]
        # A shorter prompt is computed where it is decoded, and no prediction sends a longer one there, too.
        more += ["--local-prefill-tokens", 32, "--slo-ttft", 2, "--slo-tpot", 0.1]
        super().__init__("main", folder, 2, 2, *more)
        self.ledger = pathlib.Path(folder, "ledger")
        self.load = self.run(self.bench(64))
        self.keep_asking(lambda: self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}, 8), 0.4)
        # As many at a time as it takes for one a second to fail when each one waits for ten seconds.
        self.keep_asking(lambda: self.post("/v1/moderations", {"input": "Hello!"}), 1, clients=12)
        workers = ("prefill-0", "prefill-1"), ("decode-0", "decode-1")
        frozen_workers = lambda *names: lambda: frozen(*map(self.pid, names))
        self.scenes = [
            self.healthy,
            Scene("clients err and leave", self.bad_clients),
            Scene("workers, the gateway and the router die and are started again", self.one_after_another),
            Scene("a prefill worker stands still", frozen_workers("prefill-1"), {"BatonTargetDown": {"pod": "prefill-1"}}, LOSES),
            Scene("no prefill worker", frozen_workers(*workers[0]), {"BatonNoPrefillWorker": MINE, "BatonTargetDown": {"component": "prefill"}}, LOSES),
            Scene("no decode worker", frozen_workers(*workers[1]), {"BatonNoDecodeWorker": MINE, "BatonTargetDown": {"component": "decode"}, "BatonQueueBacklog": MINE}, {**FAILS, **WAITS, **LOSES, "BatonHitRateCollapse": "hardly a prompt is looked up"}),
            Scene("the router stands still", frozen_workers("router"), {"BatonNoRouter": {}, "BatonTargetDown": {"pod": "router"}, "BatonGatewayErrors": {}}, {**FAILS, **WAITS}),
            Scene("the gateway stands still", frozen_workers("gateway"), {"BatonTargetDown": {"pod": "gateway"}}),
            Scene("prefill workers fall silent again and again", lambda: repeated(stutter(map(self.pid, workers[0]), 2.5), 1.5), {"BatonHandoffFailures": {}}, {**UNSCRAPED, **WAITS, **LOSES, "BatonNoPrefillWorker": "both are silent for a moment"}),
            Scene("the classifier stands still", frozen_workers("moderator"), {"BatonModerationUnavailable": {}, "BatonNoDecodeWorker": {"model": "baton-guard"}}, {**UNSCRAPED, "BatonQueueBacklog": "verdicts wait for it", "BatonGatewayErrors": "texts without a verdict end with 503"}),
            Scene("the ledger can't be written", self.ledger_locked, {"BatonLedgerFailing": {}}),
            Scene("prompts have nothing in common any more", self.other_prompts, {"BatonHitRateCollapse": {}}),
            Scene("first tokens come late", lambda: repeated(stutter(map(self.pid, workers[1]), 4.5), 1.5), {"BatonTtftBurnFast": MINE, "BatonTtftBurnSlow": MINE}, SLOW),
            Scene("decode workers get ever less time", self.starved, {"BatonTpotBurnFast": MINE, "BatonTpotBurnSlow": MINE}, {**SLOW, "BatonOverload": "routers refuse by what they have learnt of these workers, and for a while after the fault, too"}),
        ]

    def bench(self, shared):
        return bench(self.router, "--rate", 4, "--prompt-tokens", "uniform:40:160", "--output-tokens", "uniform:16:24", "--shared-prefix-tokens", shared, "--prefix-groups", 3)

    @contextlib.contextmanager
    def bad_clients(self):
        """Requests that are no requests, and clients that do not wait for their answers."""
        message = {"role": "user", "content": " ".join(["Hello!"] * 300)}

        def act(_):
            for body, timeout in (({"messages": "none"}, 30), ({"messages": [message], "max_tokens": 200}, random.uniform(0.005, 0.1))):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    self.post("/v1/chat/completions", body, timeout)

        with repeated(act, 0.2), self.passes(45):
            yield

    @contextlib.contextmanager
    def one_after_another(self):
        for name in ("prefill-0", "decode-1", "gateway", "router", "moderator"):
            self.kill(name)
            with self.passes(6):
                pass
        yield

    def slow_answers(self):
        """Over the SLO of TPOT, so far."""
        with urllib.request.urlopen(f"http://{self.announced['metrics']}/metrics", timeout=30) as page:
            lines = [line for line in page.read().decode().splitlines() if line.startswith("baton_router_over_slo_total") and 'slo="tpot"' in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    @contextlib.contextmanager
    def starved(self):
        """How little is little enough depends on the machine, so they get less as long as hardly an answer is slow; with less than that there would be no answers at all."""
        time_to_run, begun, slow = 0.002, time.monotonic(), self.slow_answers()
        pids = [self.pid(name) for name in ("decode-0", "decode-1")]

        def act(ended):
            nonlocal time_to_run, begun, slow
            with frozen(*pids):
                ended.wait(0.4)
            if time.monotonic() > begun + 10:
                before, slow = slow, self.slow_answers()
                if slow < before + 3:
                    time_to_run = max(time_to_run / 2, 0.0003)
                begun = time.monotonic()
            time.sleep(time_to_run)

        with repeated(act, 0):
            yield

    @contextlib.contextmanager
    def ledger_locked(self):
        with contextlib.closing(sqlite3.connect(self.ledger, timeout=60)) as other:
            other.execute("BEGIN EXCLUSIVE")
            yield
            other.rollback()

    @contextlib.contextmanager
    def other_prompts(self):
        self.load.stop()
        with self.while_running(self.bench(0)):
            yield
        self.load = self.run(self.bench(64))


class Hand(Service):
    """Processes that are started one by one, with wires between them."""

    def __init__(self, folder):
        super().__init__("hand", folder)
        self.processes = {}
        for name, days in (("short", 3), ("long", 90)):
            self.openssl(name, days)
        self.certify("long")
        prefill = self.start("prefill", "prefill-0")
        decode = self.start("decode", "decode-0", "--local-prefill-tokens", 32)
        self.wires = {name: Wire(address) for name, address in (("prefill", prefill), ("decode", decode))}
        for wire in self.wires.values():
            self.ends.callback(wire.stop)
        self.start_redis()
        self.ends.callback(lambda: self.redis.stop())
        self.name_workers()
        self.router = self.start(
            *("router", "router-0", "--fleet-file", self.folder / "fleet.json", "--store", f"unix://{self.folder}/redis.sock", "--queue-requests", 4),
            *("--worker-concurrency", 2, "--queue-seconds", 5, "--default-ttft-deadline", 0, "--slo-ttft", 5, "--slo-tpot", 1),
        )
        self.gateway = self.start("gateway", "gateway-0", "--router", self.router, "--tls-cert", self.folder / "cert.pem", "--tls-key", self.folder / "key.pem", "--max-connections", 40)
        self.run(bench(self.router, "--rate", 1, "--prompt-tokens", "uniform:100:200", "--output-tokens", "uniform:4:8"))
        self.scenes = [
            self.healthy,
            Scene("the store is away", self.without_redis, {"BatonStoreAway": {}}),
            Scene("a gateway stands still", lambda: frozen(self.processes["gateway-0"].popen.pid), {"BatonTargetDown": {"pod": "gateway-0"}}),
            Scene("a gateway's clients leave no room", self.many_clients, {"BatonGatewayConnections": {}}),
            Scene("requests wait in vain for a worker", lambda: frozen(self.processes["decode-0"].popen.pid), {"BatonErrorRatio": {}, "BatonNoDecodeWorker": {}, "BatonTargetDown": {"pod": "decode-0"}}, {**WAITS, **LOSES, "BatonQueueBacklog": "others wait, too"}),
            Scene("a certificate ends soon", self.short_certificate, {"BatonCertificateExpiry": {"pod": "gateway-0"}}),
            Scene("a worker of another precision joins", self.stranger, {"BatonFingerprintMismatch": {}}, GONE),
            Scene("a link is below its floor", self.below_floor, {"BatonLinkBelowFloor": {"pod": "decode-floor"}}, GONE),
            Scene("a worker drains and does not end", self.stuck_drain, {"BatonDrainStuck": {"pod": "decode-stuck"}}, GONE),
            Scene("workers are out of reach again and again", lambda: repeated(self.out_of_reach, 0.5), {"BatonWatchReconnects": {}}, {**WAITS, **FAILS, **LOSES, "BatonNoDecodeWorker": "the only one is away again and again", "BatonNoPrefillWorker": "so is the only prefill worker", "BatonQueueBacklog": "requests wait for it"}),
            Scene("the link is slow", self.slow_link, {"BatonLinkSlow": {}}, WAITS),
            Scene("more requests than it can serve", self.overload, {"BatonOverload": {}, "BatonQueueBacklog": {}}, WAITS),
        ]

    def openssl(self, name, days):
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-days", days]
        subprocess.run([str(word) for word in [*command, "-keyout", self.folder / f"{name}-key.pem", "-out", self.folder / f"{name}-cert.pem"]], check=True, capture_output=True)

    def certify(self, name):
        for part in ("key", "cert"):
            shutil.copy(self.folder / f"{name}-{part}.pem", self.folder / "draft")
            (self.folder / "draft").rename(self.folder / f"{part}.pem")

    def start(self, component, pod, *more, scraped=True):
        """A process, in the list of those to be scraped; the address that it serves on."""
        model = [] if component == "gateway" else ["--model", MODEL]
        worker = ["--threads", 1, "--kv-memory", "64MiB"] if component in ("prefill", "decode") else []
        process = Process([BIN / f"baton-{component}", *model, *worker, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", *more])
        self.processes[pod] = process
        self.ends.callback(process.stop)
        ready = process.wait_for(r"^ready .*")[0]
        addresses = dict(word.split("=") for word in ready.split()[1:])
        label = {"namespace": "local", "component": component, "pod": pod}
        self.scrape([one for one in self.targets if one["labels"]["pod"] != pod] + [{"targets": [addresses["metrics"]], "labels": label}])
        return addresses.get("grpc") or addresses.get("http")

    def end(self, pod):
        self.scrape([one for one in self.targets if one["labels"]["pod"] != pod])
        self.processes.pop(pod).stop()

    def name_workers(self, *more):
        draft = self.folder / "fleet.tmp"
        draft.write_text(json.dumps({"prefill": [self.wires["prefill"].address], "decode": [self.wires["decode"].address, *more]}))
        draft.rename(self.folder / "fleet.json")

    def start_redis(self):
        self.redis = Process(["redis-server", "--port", "0", "--unixsocket", self.folder / "redis.sock", "--save", "", "--dir", self.folder])
        self.redis.wait_for("ready to accept connections|now ready")

    @contextlib.contextmanager
    def without_redis(self):
        self.redis.stop()
        yield
        self.start_redis()

    @contextlib.contextmanager
    def many_clients(self):
        host, port = self.gateway.rsplit(":", 1)
        clients = [http.client.HTTPSConnection(host, int(port), timeout=60, context=ssl._create_unverified_context()) for _ in range(38)]

        def ask(_):  # the gateway closes what is silent for long
            for client in clients:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    client.request("GET", "/health")
                    client.getresponse().read()

        with repeated(ask, 3):
            yield
        for client in clients:
            client.close()

    @contextlib.contextmanager
    def short_certificate(self):
        self.certify("short")
        yield
        self.certify("long")

    @contextlib.contextmanager
    def stranger(self):
        self.name_workers(self.start("decode", "decode-other", "--key-dtype", "f32"))
        yield
        self.name_workers()
        self.end("decode-other")

    @contextlib.contextmanager
    def below_floor(self):
        self.start("decode", "decode-floor", "--link-peers", self.wires["prefill"].address, "--link-floor-gbps", 1000000)
        yield
        self.end("decode-floor")

    @contextlib.contextmanager
    def stuck_drain(self):
        address = self.start("decode", "decode-stuck")
        with grpc.insecure_channel(address) as channel:
            channel.unary_unary("/baton.fleet.v1.Worker/Drain")(b"", timeout=60)
        yield
        self.end("decode-stuck")

    def out_of_reach(self, ended):
        with self.wires["prefill"].broken_off(), self.wires["decode"].broken_off():
            ended.wait(0.3)

    @contextlib.contextmanager
    def slow_link(self):
        for wire in self.wires.values():
            wire.bytes_per_second = 1e6
        yield
        for wire in self.wires.values():
            wire.bytes_per_second = None

    @contextlib.contextmanager
    def overload(self):
        flood = ["--rate", 15, "--duration", "3h", "--max-in-flight", 40, "--prompt-tokens", 16, "--output-tokens", 1500]
        with self.while_running(Process([BIN / "baton", "bench", "--server", self.router, *flood])):
            yield


# More prefixes than the memory holds, again and again.
ROUND = ["--rate", 2, "--prompt-tokens", "uniform:40:80", "--output-tokens", "uniform:4:8", "--shared-prefix-tokens", 400, "--prefix-groups", 24]


def spoil(folder):
    """Bytes of every block in the files of a tier."""
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.name != "lock" and (size := path.stat().st_size) > 0:
                with path.open("r+b") as file:
                    for at in range(100, size, 4096):  # a block has more than a page
                        file.seek(at)
                        file.write(b"spoilt")


class Small(Served):
    """A decode worker with little memory and a disk tier."""

    def __init__(self, folder):
        self.disk = pathlib.Path(folder, "disk")
        more = ["--kv-memory", "12MiB", "--kv-disk", self.disk, "--peer-fetch", "always", "--slo-ttft", 30, "--slo-tpot", 2]
        super().__init__("small", folder, 0, 1, *more)
        self.run(bench(self.router, *ROUND))
        self.scenes = [
            self.healthy,
            Scene("somebody writes into the disk tier", self.spoilt_disk, {"BatonDiskFailing": {"pod": "decode-0"}}),
            Scene("long answers fill the pool", self.long_answers, {"BatonKvPoolFull": {}, "BatonPreemptions": {}}, WAITS),
        ]

    @contextlib.contextmanager
    def spoilt_disk(self):
        with repeated(lambda _: spoil(self.disk), 0.3):
            yield
        # Spoilt blocks would be found one by one: as the runbook says, the worker goes on with an empty folder.
        (self.disk / "decode-0").rename(self.disk / "spoilt")
        self.kill("decode-0")

    @contextlib.contextmanager
    def long_answers(self):
        with self.while_running(Process([BIN / "baton", "bench", "--server", self.router, "--concurrency", 10, "--duration", "3h", "--prompt-tokens", 32, "--output-tokens", "uniform:800:1500"])):
            yield


class Sharing(Served):
    """A decode worker with little memory, and a folder that others could have, too."""

    def __init__(self, folder):
        self.shared = pathlib.Path(folder, "shared")
        super().__init__("sharing", folder, 0, 1, "--kv-memory", "12MiB", "--kv-shared", self.shared, "--peer-fetch", "always", "--slo-ttft", 30, "--slo-tpot", 2)
        self.run(bench(self.router, *ROUND))
        self.scenes = [
            self.healthy,
            Scene("somebody writes into the shared folder", lambda: repeated(lambda _: spoil(self.shared), 0.3), {"BatonSharedFailing": {}}),
        ]


SERVICES = (Main, Hand, Small, Sharing)
