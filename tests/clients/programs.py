"""The processes of the cases: a decode worker and routers with flags, and the languages' programs that make calls by plain gRPC."""
import base64
import json
import subprocess
import threading
import time
import urllib.request

from relay import BIN, MODEL, PATIENCE, Process


class Service:
    """baton-decode or baton-router, on ports of the system's choice unless `listen` says where."""

    def __init__(self, case, role, *flags, listen="127.0.0.1:0"):
        self.process = Process([BIN / f"baton-{role}", "--model", MODEL, "--listen", listen, "--metrics", "127.0.0.1:0", *flags])
        case(self.process.stop)
        ready = self.process.wait_for(r"^ready grpc=(\S+) metrics=(\S+)")
        self.address, self.metrics_address = ready[1], ready[2]

    def metric(self, name):
        """The sum of what has this name."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=60) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))


class Result:
    """The end of a call."""

    def __init__(self, event):
        self.code, self.message, self.count = event["code"], event["message"], event["count"]
        self.headers, self.trailers = event["headers"], event["trailers"]
        self.last = base64.b64decode(event["last"])
        self.kept = [base64.b64decode(one) for one in event["kept"]]

    def __repr__(self):
        return f"code {self.code}, {self.count} messages, {self.message!r}, {sorted(self.trailers)}"


class Program:
    """One of the programs `plain`."""

    def __init__(self, command, **settings):
        self.popen = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.events, self.calls, self.errors = {}, 0, []
        self.new = threading.Condition()
        self.readers = [threading.Thread(target=target, daemon=True) for target in (self._read, self._listen)]
        for reader in self.readers:
            reader.start()
        self.send(**settings)

    def _read(self):
        for line in self.popen.stdout:
            event = json.loads(line)
            with self.new:
                self.events[event["id"], event["event"]] = event
                self.new.notify_all()
        with self.new:
            self.events["over"] = {}
            self.new.notify_all()

    def _listen(self):
        for line in self.popen.stderr:
            self.errors.append(line)

    def send(self, **command):
        self.popen.stdin.write(json.dumps(command) + "\n")
        self.popen.stdin.flush()

    def call(self, method, request=None, **more):
        """The call's number. method: with its service, if that is not Inference."""
        self.calls += 1
        name = method if "/" in method else f"baton.v1.Inference/{method}"
        encoded = base64.b64encode(request.SerializeToString()).decode() if request is not None else ""
        self.send(op="call", id=self.calls, method=name, request=encoded, **more)
        return self.calls

    def wait(self, call, event):
        """An event of the call; its end is taken too, so that a call that fails early is seen."""
        deadline = time.monotonic() + PATIENCE
        with self.new:
            while (call, event) not in self.events:
                left = deadline - time.monotonic()
                if (call, "end") in self.events or "over" in self.events or left < 0:
                    raise AssertionError(f"no {event} of call {call}: {self.events.get((call, 'end'))} {self.errors[-5:]}")
                self.new.wait(left)
            return self.events[call, event]

    def has(self, call, event):
        return (call, event) in self.events

    def end(self, call):
        return Result(self.wait(call, "end"))

    def ask(self, method, request=None, **more):
        return self.end(self.call(method, request, **more))

    def stop(self):
        self.popen.kill()
        self.popen.wait()
        for reader in self.readers:
            reader.join(10)
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            try:
                pipe.close()
            except OSError:
                pass
