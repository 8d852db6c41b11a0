#!/usr/bin/env python3
"""The whole product on one machine with one GPU: real workers, a real router, the real command line.

One worker that computes everything is the reference: what a hand-off adds may change nothing. Then, for each link, a
prefill and a decode worker share the GPU, and this proves: the relay starts, its answers are the reference's, all KV goes
over that link, a second turn finds its prefix, runs repeat, a prefill worker that is killed keeps no request from ending
and can be replaced, SIGTERM ends all in order. `baton serve` is tried too. On CPUs all has to have the same bits. On GPUs
those depend on what else is in a step, so an answer may leave the reference at a near tie: two tokens whose log
probabilities there are less than --near-tie apart; what comes behind it is not compared. Bits, logits and all, are
compared there between two runs of one prompt at a time alone.

The GPU's reference is itself compared with a relay on CPUs. GPUs compute in the model's precision, and the answers of a
small model to words in no order leave it for more than near ties (bf16_error.py): so most of them have to be the same.

Prints a Markdown table, a row as each check ends, then timings and the ends of the logs of what failed. All logs stay
in --results. Exit code 1: a check failed, or time was over before it ended. Needs no network and no Python packages.
"""
import argparse
import concurrent.futures
import http.client
import json
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import threading
import time

CONCURRENCY, TOKENS, MAIN, LOAD, AFTER, TALKS = 8, 32, 41, 16, 8, 8
MOST = 0.75  # of the GPU's answers are the CPUs', but for near ties
OK, FAILED, OVER = "ok", "**FAILED**", "not run: time is over"
WORDS = """the boat was near house and friend day colour help way code story time light note word song walk morning
well wind fire evening room road city map hat garden river horse night cat dog lake tree mill bridge hill forest cup
box book car bell stone ball seat lantern ticket card door teacher town uncle brother duck gold fox bad turtle crow
bear frog brown mouse silver orange yellow old dark tool answer young quiet food deep gate warm secret curious
train""".split()


class Failed(Exception):
    """Why a check has failed."""


class TimeIsOver(Exception):
    """The budget is spent."""


class Machine:
    """The processes that were started here, which end with this one, and the time that is left."""

    def __init__(self, budget):
        self.end = time.monotonic() + budget - 4 if budget else math.inf  # some seconds are for ending it all
        self.lock, self.children, self.closed = threading.Lock(), [], False

    def left(self, most):
        """The seconds that something gets which would be given `most`."""
        if self.closed or time.monotonic() >= self.end:
            raise TimeIsOver
        return min(most, self.end - time.monotonic())

    def until(self, condition, most, what):
        """Waits for a condition."""
        end = time.monotonic() + most
        while not condition():
            if time.monotonic() > end:
                raise Failed(f"not within {most} s: {what}")
            time.sleep(self.left(0.05))

    def start(self, argv, log=None, env=None):
        """Starts a program, without a shell. One with a log leaves when its standard input ends, with this process."""
        argv = [str(a) for a in [*argv, *(["--exit-with-parent"] if log else [])]]
        with self.lock, open(log or os.devnull, "wb") as file:
            self.left(1)
            out = file if log else subprocess.PIPE
            child = subprocess.Popen(argv, stdin=subprocess.PIPE if log else subprocess.DEVNULL, stdout=out, stderr=out,
                                     env=env, text=not log)
            self.children = [c for c in self.children if c.returncode is None] + [child]
            return child

    def kill(self, children):
        """Kills those that still run."""
        for child in children:
            if child.poll() is None:
                child.kill()
        for child in children:
            try:
                child.wait(2)
            except subprocess.TimeoutExpired:
                pass  # in a driver, which ends in its own time

    def baton(self, binaries, most, *argv):
        """Runs a command of `baton`: exit code (None: no end within `most` seconds), output, errors."""
        child = self.start([binaries / "baton", *argv])
        try:
            output, errors = child.communicate(timeout=self.left(most))
        except subprocess.TimeoutExpired:
            self.kill([child])
            self.left(1)
            return None, "", f"no end within {most} s"
        return child.returncode, output, errors

    def close(self):
        """Ends everything, and lets nothing else start."""
        with self.lock:
            self.closed = True
            self.kill(self.children)


class Report:
    """The table, and what comes below it."""

    def __init__(self, machine):
        self.machine, self.failures, self.timings, self.logs = machine, 0, [], {}
        print("| check | verdict | seconds | note |\n|---|---|---:|---|", flush=True)

    def row(self, name, verdict, seconds=0.0, note=""):
        """One row, at once."""
        note = re.sub(r"\s+", " ", note).replace("|", "/")[:700]
        print(f"| {name} | {verdict} | {seconds:.1f} | {note} |", flush=True)

    def check(self, name, function, logs=lambda: []):
        """Runs a check, which returns a note, and returns the verdict; `logs` are shown if it fails."""
        begin = time.monotonic()
        try:
            self.machine.left(1)
            verdict, note = OK, function()
        except TimeIsOver:
            verdict, note = OVER, ""
        except Exception as failure:  # whatever it is, the next check runs
            verdict, note = FAILED, str(failure) if isinstance(failure, Failed) else repr(failure)
            self.logs.update((path, name) for path in logs())
        self.failures += verdict != OK
        self.row(name, verdict, time.monotonic() - begin, note)
        return verdict

    def end(self):
        """Timings, and the ends of logs."""
        if self.timings:
            print("\n| link | TTFT p50, ms | TPOT p50, ms | requests/s |\n|---|---:|---:|---:|")
        for link, r in self.timings:
            print(f"| {link} | {r['ttft']['p50'] * 1e3:.2f} | {r['tpot']['p50'] * 1e3:.3f} "
                  f"| {r['requests']['per_second']:.1f} |")
        for path, name in self.logs.items():
            lines = path.read_text(errors="replace").splitlines() if path.exists() else []
            if not lines:
                continue
            print(f"\n{name}: the end of {path}\n\n```\n" + "\n".join(lines[-15:]) + "\n```", flush=True)


class Answer:
    """An answer of `baton generate`, or its error: a clean one if the command ended by itself and told why."""

    def __init__(self, code, output, errors):
        self.error = "" if code == 0 else errors.strip() or f"exit code {code}"
        self.clean = code in (0, 1) and (code == 0 or "baton: " in errors)
        if code == 0:
            choice = json.loads(output)["choices"][0]
            self.tokens, self.digests = choice["token_ids"], choice["logits_digests"]
            self.top = [{t["token_id"]: t["logprob"] for t in [*step["top"], step]} for step in choice["logprobs"]]
            self.usage, self.relay = choice["usage"], choice["relay"]

    def against(self, expected, near):
        """A verdict, and the first difference."""
        if self.error or expected.error:
            return "failed", self.error or "the other answer failed"
        if self.tokens == expected.tokens:
            return "equal", ""
        if len(self.tokens) != len(expected.tokens):
            return "different", f"{len(self.tokens)} tokens and not {len(expected.tokens)}"
        at = next(i for i, token in enumerate(self.tokens) if token != expected.tokens[i])
        here, there, top = self.tokens[at], expected.tokens[at], expected.top[at]
        gap = top[there] - top.get(here, -math.inf)
        return "near tie" if gap < near else "different", f"token {at} is {here} and not {there}, by {gap:.3f}"


def tally(expected, answers, near=-1.0, bits=False, may_fail=False, most=1.0):
    """A note on how many answers are as expected. Failed if one is not: by tokens, with `bits` by logits too; or, with
    `most`, if fewer than that share are."""
    if not answers or len(expected) != len(answers):
        raise Failed("there is nothing to compare with: an earlier check has failed")
    found = [(i, a, *a.against(e, near)) for i, (e, a) in enumerate(zip(expected, answers))]
    counts = {what: sum(f[2] == what for f in found) for what in ("equal", "near tie", "failed", "different")}
    same = sum(v == "equal" and a.digests == e.digests for e, (_, a, v, _) in zip(expected, found))
    note = ", ".join(f"{n} {what}" for what, n in counts.items() if n or what == "equal")
    details = [f"answer {i} {verdict}: {detail}" for i, _, verdict, detail in found if verdict != "equal"]
    note = "; ".join([f"{note}, {same} with the same logits", *sorted(details, key=lambda d: "different" not in d)[:4]])
    wrong = any(v == "failed" and not (may_fail and a.clean) for _, a, v, _ in found)
    wrong |= counts["different"] > (1 - most) * len(found)
    if wrong or bits and same < counts["equal"]:
        raise Failed(note)
    return note


class Fleet:
    """A prefill worker, a decode worker and a router."""

    def __init__(self, run, link, backend):
        self.run, self.machine, self.flags, self.link, self.backend = run, run.machine, run.flags, link, backend
        self.name, self.processes, self.ports = f"{backend}-{link}", {}, {}

    def path(self, name):
        """A file of this fleet in --results."""
        return self.flags.results / f"{self.name}-{name}"

    def logs(self):
        """The logs of all processes so far."""
        return [self.path(f"{name}.log") for name in self.processes]

    def start(self, name, program, *more, env=None):
        """Starts a program."""
        argv = [self.flags.bin / program, "--model", self.flags.model, *more]
        self.processes[name] = self.machine.start(argv, self.path(f"{name}.log"), env)

    def start_worker(self, role, name):
        """Starts a worker, with what its link needs where both ends are on one GPU."""
        more, env = ["--local-prefill-tokens", 0] if role == "decode" else [], dict(os.environ)
        if self.backend == "cuda":
            more += ["--devices", 0, "--kv-memory", self.flags.kv_memory]
        if self.link == "nccl":  # it refuses two ranks on one GPU of one host
            env |= {"NCCL_HOSTID": f"relay-{name}", "NCCL_SOCKET_IFNAME": "lo"}
        if self.link == "ucx" and self.flags.ucx_lib:
            path = [str(self.flags.ucx_lib), *filter(None, [env.get("LD_LIBRARY_PATH")])]
            env |= {"LD_LIBRARY_PATH": ":".join(path), "UCX_MODULE_DIR": f"{self.flags.ucx_lib}/ucx"}
        if self.link == "ucx" and self.backend == "cuda":
            env["UCX_TLS"] = "cuda_ipc,cuda_copy,sm,tcp,self"
        self.start(name, f"baton-{role}", "--worker-id", name, "--backend", self.backend, "--link", self.link, *more,
                   env=env)

    def await_ready(self, name):
        """Waits for the line with a program's addresses."""
        def ready():
            line = re.search(r"^ready .*\n", self.path(f"{name}.log").read_text(errors="replace"), re.MULTILINE)
            if line:
                self.ports[name] = dict(re.findall(r"(\w+)=(\S+)", line[0]))
            elif self.processes[name].poll() is not None:
                raise Failed(f"{name} ended with code {self.processes[name].returncode} before it was ready")
            return line
        self.machine.until(ready, 180, f"{name} is ready")

    def tell_router(self, *prefill):
        """Writes the file of workers, which the router reads again."""
        draft, workers = self.path("fleet.tmp"), {"prefill": prefill, "decode": ["decode-1"]}
        draft.write_text(json.dumps({r: [self.ports[name]["grpc"] for name in names] for r, names in workers.items()}))
        draft.replace(self.path("fleet.json"))

    def start_all(self, roles=("prefill", "decode"), *router_flags):
        """Starts everything. The note has what the logs say of speeds and, if anything, of prefill's kernel."""
        for role in roles:
            self.start_worker(role, f"{role}-1")
        for role in roles:
            self.await_ready(f"{role}-1")
        self.tell_router(*(["prefill-1"] if "prefill" in roles else []))
        self.start("router", "baton-router", "--policy", "round_robin", "--fleet-file", self.path("fleet.json"),
                   *router_flags)
        self.await_ready("router")
        self.machine.until(lambda: all(self.metric("router", f'baton_router_workers{{role="{r}"}}') for r in roles), 60,
                           "the router has found its workers")
        text = "".join(self.path(f"{role}-1.log").read_text(errors="replace") for role in roles)
        told = re.findall(r".*(?:wgmma|prefill kernel|prefill attention).*", text)
        return "; ".join([*told, *re.findall(r"measured .*", text)])

    def metric(self, name, metric):
        """A process's metric."""
        host, port = self.ports[name]["metrics"].rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=self.machine.left(10))
        try:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
        finally:
            connection.close()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(metric + " "))

    def ask(self, prompts, concurrency=CONCURRENCY):
        """The answers to prompts, in their order."""
        with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
            return list(pool.map(self.generate, prompts))

    def generate(self, prompt):
        """The answer to one prompt."""
        return self.run.generate(self.ports["router"]["grpc"], prompt)

    def expect_handoffs(self, requests):
        """All requests so far were handed over by this link, says the decode worker."""
        ok, failed = (self.metric("decode-1", f'baton_handoffs_total{{link="{self.link}",outcome="{outcome}"}}')
                      for outcome in ("ok", "failed"))
        received = self.metric("decode-1", f'baton_kv_received_bytes_total{{link="{self.link}"}}')
        local = self.metric("decode-1", "baton_local_prefill_tokens_total")
        note = (f"{ok:.0f} hand-offs for {requests} requests, {failed:.0f} failed, {received / 2**20:.1f} MiB received"
                f", {local:.0f} prompt tokens computed by the decode worker")
        if (ok, failed, local) != (requests, 0, 0) or received <= 0:
            raise Failed(note)
        return note

    def stop(self, least=3):
        """SIGTERM to all that still run, which end with code 0."""
        alive = {name: p for name, p in self.processes.items() if p.poll() is None}
        if len(alive) < least or "router" not in alive:
            raise Failed(f"still running were only: {', '.join(alive) or 'none'}")
        for process in alive.values():
            process.terminate()
        self.machine.until(lambda: all(p.poll() is not None for p in alive.values()), 30, "all have ended")
        codes = ", ".join(f"{name} {p.returncode}" for name, p in alive.items())
        if any(p.returncode for p in alive.values()):
            raise Failed(f"exit codes: {codes}")
        return codes


class LinkChecks:
    """The checks of one link, in their order."""

    def __init__(self, run, link):
        self.run, self.link, self.fleet = run, link, Fleet(run, link, run.flags.backend)
        self.prompts, self.expected = run.prompts[:MAIN], run.expected[:MAIN]
        self.first, self.second = [], []

    def all(self):
        """Runs them."""
        def check(name, function):
            return self.run.report.check(f"{self.link}: {name}", function, self.fleet.logs)
        if check("starts", self.fleet.start_all) == FAILED:
            self.run.report.row(f"{self.link}: all else", "not run: it did not start")
        else:
            check(f"{MAIN} greedy answers", self.answers)
            check(f"relayed by {self.link}", self.relayed)
            check("second turn", self.second_turn)
            check("same prompts again, one at a time", self.again)
            check("and once more, equal bit for bit", self.bit_for_bit)
            check("bench", self.bench)
            check("prefill worker killed", self.killed)
            check("new prefill worker", self.replaced)
            check("SIGTERM ends all within 30 s, exit codes 0", self.fleet.stop)
        self.run.machine.kill(self.fleet.processes.values())

    def answers(self):
        """Several at a time, short and long."""
        self.first = self.fleet.ask(self.prompts)
        return tally(self.expected, self.first, *self.run.exact)

    def relayed(self):
        """Both sides of the story: what answers say, and what the decode worker counts."""
        for i, answer in enumerate(self.first):
            if answer.error or answer.relay["link"] != self.link or not answer.relay["shipped_bytes"]:
                raise Failed(f"answer {i}: {answer.error or answer.relay}")
        return self.fleet.expect_handoffs(MAIN)

    def second_turn(self):
        """The first turn's KV, prompt and answer, is found again."""
        first, second, expected = zip(*self.run.talks) if self.run.talks else ((), (), ())
        self.fleet.ask(first)
        replies = self.fleet.ask(second)
        note = tally(expected, replies, *self.run.exact)
        cached = [reply.usage["decode_cached_tokens"] for reply in replies]
        note += f"; {min(cached)} to {max(cached)} of {replies[0].usage['prompt_tokens']} tokens cached"
        if not min(cached):
            raise Failed(note)
        return note

    def again(self):
        """The same answers as among others."""
        self.second = self.fleet.ask(self.prompts, 1)
        return tally(self.first, self.second, *self.run.exact)

    def bit_for_bit(self):
        """The same steps once more, so the same bits, on GPUs as well."""
        return tally(self.second, self.fleet.ask(self.prompts, 1), bits=True)

    def bench(self):
        """A line of figures."""
        path = self.fleet.path("bench.json")
        code, _, errors = self.run.machine.baton(
            self.run.flags.bin, 240, "bench", "--server", self.fleet.ports["router"]["grpc"], "--concurrency", 8, "--requests", 64,
            "--prompt-tokens", 256, "--output-tokens", 64, "--json", path)
        result = json.loads(path.read_text()) if code == 0 else {}
        if code != 0 or result["requests"]["succeeded"] != 64:
            raise Failed(f"exit code {code}, {result.get('requests')}, {result.get('errors')} {errors[-300:]}")
        self.run.report.timings.append((self.link, result))
        return "64 requests; figures below"

    def killed(self):
        """SIGKILL in the middle of a load: every request ends, with the right answer or a clean error."""
        load, expected = self.run.prompts[MAIN:MAIN + LOAD], self.run.expected[MAIN:MAIN + LOAD]
        with concurrent.futures.ThreadPoolExecutor(CONCURRENCY) as pool:
            futures = [pool.submit(self.fleet.generate, prompt) for prompt in load]
            concurrent.futures.wait(futures, return_when=concurrent.futures.FIRST_COMPLETED)
            before = sum(future.done() for future in futures)
            self.fleet.processes["prefill-1"].kill()
            found = [future.result() for future in futures]
        local = sum(not a.error and a.relay["link"] != self.link for a in found)
        note = tally(expected, found, *self.run.exact, may_fail=True)
        cut = self.fleet.metric("decode-1", f'baton_handoffs_total{{link="{self.link}",outcome="failed"}}')
        return (f"killed when {before} of {LOAD} had ended; {cut:.0f} hand-offs cut off, {local} answers without the "
                f"link; {note}")

    def replaced(self):
        """A new worker, of which the router reads in its file, gets the requests."""
        self.fleet.start_worker("prefill", "prefill-2")
        self.fleet.await_ready("prefill-2")
        self.fleet.tell_router("prefill-2")
        source = random.Random(7)

        def reached():
            answer = self.fleet.generate(sentence(source, 40))
            return not answer.error and answer.relay["prefill_worker"] == "prefill-2"
        begin = time.monotonic()
        self.run.machine.until(reached, 60, "the router sends prompts to the new worker")
        reached_in = time.monotonic() - begin
        found = self.fleet.ask(self.run.prompts[MAIN + LOAD:])
        note = tally(self.run.expected[MAIN + LOAD:], found, *self.run.exact)
        note = f"reached {reached_in:.1f} s after it was ready; {note}"
        wrong = [a.relay for a in found if (a.relay["prefill_worker"], a.relay["link"]) != ("prefill-2", self.link)]
        if wrong:
            raise Failed(f"{note}; {len(wrong)} not by the new worker: {wrong[0]}")
        return note


class Run:
    """All checks, and what they share."""

    def __init__(self, flags):
        self.flags, self.machine = flags, Machine(flags.budget)
        self.report = Report(self.machine)
        self.exact = (flags.near_tie, False) if flags.backend == "cuda" else (-1.0, True)  # for tally
        self.prompts, self.expected, self.talks = make_prompts(flags.model), [], []

    def generate(self, server, prompt):
        """A greedy answer; the prompt is a text or a list of token ids."""
        text = ("-p", prompt) if isinstance(prompt, str) else ("--token-ids", ",".join(map(str, prompt)))
        return Answer(*self.machine.baton(
            self.flags.bin, 90, "generate", "--server", server, *text, "-t", 0, "-m", TOKENS, "--ignore-eos", "--json",
            "--logprobs", 20, "--digest", "--timeout", "75s"))

    def reference(self, backend):
        """The answers of one worker: to the prompts, and to the second turns of conversations made of them."""
        fleet = Fleet(self, "host", backend)
        fleet.name = f"{backend}-alone"

        def ask(prompts):
            answers = fleet.ask(prompts)
            tally(answers, answers)  # none has failed
            return answers

        def check():
            fleet.start_all(("decode",))
            self.expected = ask(self.prompts)
            said = [answer.tokens for answer in self.expected]
            firsts = [said[4 * i] + said[4 * i + 1] + said[4 * i + 2] for i in range(TALKS)]
            seconds = [f + a.tokens + said[4 * i + 3] for i, (f, a) in enumerate(zip(firsts, ask(firsts)))]
            self.talks = list(zip(firsts, seconds, ask(seconds)))
            lengths = [answer.usage["prompt_tokens"] for answer in self.expected[:MAIN]]
            return f"{MAIN} prompts of {min(lengths)} to {max(lengths)} tokens; exit codes: {fleet.stop(2)}"
        self.report.check(f"one worker on {backend}", check, fleet.logs)
        self.machine.kill(fleet.processes.values())

    def serve(self):
        """`baton serve`, from its start to its end."""
        announced, log = self.flags.results / "serve.json", self.flags.results / "serve.log"
        announced.unlink(missing_ok=True)
        argv = [self.flags.bin / "baton", "serve", "--model", self.flags.model, "--backend", self.flags.backend,
                "--prefill", 1, "--decode", 1, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                "--local-prefill-tokens", 0, "--announce", announced]
        if self.flags.backend == "cuda":
            argv += ["--prefill-devices", 0, "--decode-devices", 0, "--kv-memory", self.flags.kv_memory]

        def check():
            child = self.machine.start(argv, log)

            def ready():
                if child.poll() is not None:
                    raise Failed(f"it ended with code {child.returncode} before it was ready")
                return announced.exists()
            try:
                self.machine.until(ready, 180, "it is ready")
                router, prompts = json.loads(announced.read_text())["router"], self.prompts[20:28]
                answers = [self.generate(router, prompt) for prompt in prompts]
                note = tally(self.expected[20:28], answers, *self.exact)
                links = [answer.relay["link"] for answer in answers]
                note += "; links: " + ", ".join(f"{links.count(link)} {link}" for link in sorted(set(links)))
            finally:
                child.terminate()
            self.machine.until(lambda: child.poll() is not None, 60, "it has ended after SIGTERM")
            if child.returncode:
                raise Failed(f"{note}; exit code {child.returncode}")
            return f"{note}; exit code 0"
        self.report.check("baton serve", check, lambda: [log])


def sentence(source, words):
    """Words in no order."""
    return " ".join(source.choice(WORDS) for _ in range(words))


def make_prompts(model):
    """Forty of 5 to about 400 tokens in a mixed order, a long one, those of the load, and those after it."""
    source, context = random.Random(30), 1024
    if (model / "config.json").exists():
        context = json.loads((model / "config.json").read_text()).get("max_position_embeddings", context)
    words = [4 + 395 * i // (MAIN - 2) for i in range(MAIN - 1)]
    source.shuffle(words)
    words += [min(2000, context * 9 // 10 - 2 * TOKENS)] + [source.randint(250, 350) for _ in range(LOAD + AFTER)]
    return [sentence(source, n) for n in words]


def flags_of(doc, kv_memory):
    """What the checks and the loads (serve_load.py) are both told."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    folder = {"type": lambda path: pathlib.Path(path).resolve(), "metavar": "DIR"}
    parser.add_argument("--bin", **folder, required=True, help="the binaries")
    parser.add_argument("--model", **folder, required=True, help="the model")
    parser.add_argument("--results", **folder, required=True, help="for logs; made if it is not there")
    parser.add_argument("--backend", choices=["cuda", "cpu"], default="cuda", help="default cuda")
    parser.add_argument("--budget", type=float, help="seconds in all (default: as it takes)")
    parser.add_argument("--kv-memory", default=kv_memory, help=f"of each worker on the GPU (default {kv_memory})")
    parser.add_argument("--ucx-lib", **folder, help="UCX's libraries, modules in ucx/, for that link's workers")
    return parser


def main():
    """Reads flags, runs all, ends all."""
    parser = flags_of(__doc__, "2GiB")
    parser.add_argument("--links", default="host", help="host, ucx and nccl, with commas between (default host)")
    parser.add_argument("--near-tie", type=float, default=0.05, help="a near tie's log probabilities (default 0.05)")
    flags = parser.parse_args()
    links = flags.links.split(",")
    if not set(links) <= {"host", "ucx", "nccl"}:
        parser.error("--links: host, ucx and nccl, with commas between")
    flags.results.mkdir(parents=True, exist_ok=True)
    run = Run(flags)

    try:
        run.reference("cpu")
        if flags.backend == "cuda":
            on_cpu = run.expected
            run.reference("cuda")
            run.report.check("most of its answers are the CPU's",
                             lambda: tally(on_cpu, run.expected, flags.near_tie, most=MOST))
        for link in links:
            if link == "nccl" and flags.backend == "cpu":
                run.report.row(link, "not run: KV on GPUs only")
            else:
                LinkChecks(run, link).all()
        run.serve()
    finally:
        run.machine.close()
        run.report.end()
    return 1 if run.report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
