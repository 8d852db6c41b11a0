"""Parts that the cases share: how a case is named and run for each language, the services that it runs against, requests, and the table."""
import base64
import collections
import contextlib
import dataclasses
import functools
import json
import pathlib
import tempfile
import unittest

import grpc

import languages
from programs import Program, Service
from relay import ROOT, lacking, until
from servers import error_details_pb2, generation, inference, rpc, status_pb2

ALL = ("go", "java", "typescript", "rust", "python")
NAMES = {"go": "Go", "java": "Java", "typescript": "TypeScript", "rust": "Rust", "python": "Python", "raw": "frames by hand", "protoc": "protoc"}
SERVICE_CONFIG = (ROOT / "examples/service_config.json").read_text()
OK, CANCELLED, UNKNOWN, INVALID, DEADLINE = 0, 1, 2, 3, 4
NOT_FOUND, EXHAUSTED, ABORTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 5, 8, 10, 12, 13, 14, 16


@dataclasses.dataclass(frozen=True)
class Case:
    number: int
    who: tuple[str, ...]
    what: str
    expected: str
    elsewhere: str = ""  # why it does not run here, or where it does


CASES = []
RESULTS = collections.defaultdict(dict)


def case(number, who, what, expected):
    """A test of this case. It is called once for each language, with `self.language` set."""
    CASES.append(Case(number, who, what, expected))

    def decorate(test):
        @functools.wraps(test)
        def run(self):
            for language in who:
                with self.subTest(case=number, language=language):
                    self.language = language
                    RESULTS[number][language] = "failed"
                    try:
                        test(self)
                    except unittest.SkipTest:
                        RESULTS[number][language] = "skipped"
                        raise
                    RESULTS[number][language] = "passed"
                    self.doCleanups()

        return run

    return decorate


def elsewhere(number, who, what, expected, why):
    CASES.append(Case(number, who, what, expected, why))


def stream_of(tokens, **more):
    request = inference.GenerateRequest(text="Once upon a time", **more)
    request.stop.max_tokens = tokens
    request.stop.ignore_eos = True
    return request


def large(tokens=2200):
    """6 MB of answer: more than a client's window, so that it lasts as long as nobody reads."""
    request = stream_of(tokens)
    request.options.n = 8
    request.output.logprobs, request.output.top_logprobs = True, 20
    return request


def question(**more):
    request = inference.ChatRequest(**more)
    request.conversation.messages.add(role="user", content="Hello! My name is Ada.")
    return request


def details_of(result):
    """The details of an error by their kinds."""
    if "grpc-status-details-bin" not in result.trailers:
        return {}
    found = {}
    for one in status_pb2.Status.FromString(decoded(result.trailers["grpc-status-details-bin"])).details:
        for kind in (error_details_pb2.ErrorInfo, error_details_pb2.RetryInfo, error_details_pb2.BadRequest, error_details_pb2.RequestInfo):
            if one.Is(kind.DESCRIPTOR):
                found[kind.__name__] = kind.FromString(one.value)
    return found


def decoded(binary):
    return base64.b64decode(binary + "=" * (-len(binary) % 4))


def usage_of(result):
    return generation.RequestUsage.FromString(decoded(result.trailers["baton-usage-bin"]))


class Cases(unittest.TestCase):
    """Has a decode worker and a router, which all tests of a class share."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        prices = cls.folder / "prices.json"
        prices.write_text(json.dumps({"currency": "EUR", "models": {"baton-tiny": {"prompt": "3", "cached": "1", "written_5m": "3", "written_1h": "6", "completion": "15"}}}))
        cls.worker = Service(cls.addClassCleanup, "decode", "--threads", "1", "--kv-memory", "64MiB")
        cls.shared = Service(cls.addClassCleanup, "router", "--decode", cls.worker.address, "--client-stall", "3600", "--slo-ttft", "3600", "--prices", prices)
        cls.up(cls.shared.address)

    @staticmethod
    def up(address):
        """Waits until the router has found its worker."""
        with grpc.insecure_channel(address) as channel:
            stub = rpc.InferenceStub(channel)
            until(lambda: stub.ListModels(inference.ListModelsRequest(), timeout=60).models[0].ready_decode_workers, "no worker is up")

    def router(self, *flags, **more):
        made = Service(self.addCleanup, "router", "--decode", self.worker.address, "--slo-ttft", "3600", *flags, **more)
        self.up(made.address)
        return made

    @contextlib.contextmanager
    def program(self, address=None, **settings):
        try:
            commands = languages.build(self.language)
        except languages.Lacking as lack:
            lacking(self, str(lack))
        made = Program(commands["plain"], address=address or self.shared.address, **settings)
        try:
            yield made
        finally:
            made.stop()

    def raw(self, address=None):
        import raw

        return raw.Connection(self, address or self.shared.address)

    def reason(self, result, code, reason):
        """Its details, once code and reason are right."""
        found = details_of(result)
        said = found["ErrorInfo"] if "ErrorInfo" in found else error_details_pb2.ErrorInfo()
        self.assertEqual((result.code, said.reason), (code, reason), result)
        self.assertEqual(said.domain, "baton")
        return found

    def all_well(self, program, calls):
        self.assertFalse([result for result in map(program.end, calls) if result.code != OK])

    def idle(self):
        until(lambda: self.shared.metric("baton_router_running") == 0, "work goes on that nobody waits for")


def table():
    lines = ["| # | by | case | expected |", "|---|---|---|---|"]
    for one in sorted(CASES, key=lambda one: one.number):
        who = ", ".join(NAMES.get(name, name) for name in one.who)
        lines.append(f"| {one.number} | {who} | {one.what} | {one.expected}{f'. Not here: {one.elsewhere}' if one.elsewhere else ''} |")
    return "\n".join(lines)


def report():
    """How many cases came out how, for each language."""
    counts = collections.defaultdict(collections.Counter)
    for by_language in RESULTS.values():
        for language, verdict in by_language.items():
            counts[language][verdict] += 1
    return "\n".join(f"{NAMES[language]}: {', '.join(f'{count} {verdict}' for verdict, count in verdicts.items())}" for language, verdicts in counts.items())
