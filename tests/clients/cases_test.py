#!/usr/bin/env python3
"""Cases that clients of gRPC in five languages, and frames by hand, were found to meet: each with what today's API answers. The table in docs/clients.md
is made of them (`tests/clients/cases_test.py --table`)."""
import base64
import collections
import contextlib
import dataclasses
import functools
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "deploy"))

import grpc  # noqa: E402

import languages  # noqa: E402
from certificates import make_certificates  # noqa: E402
from programs import Program, Service  # noqa: E402
from relay import BIN, ROOT, lacking, until  # noqa: E402
from servers import PingCounter, error_details_pb2, generation, inference, rpc, status_pb2  # noqa: E402

ALL = ("go", "java", "typescript", "rust", "python")
NAMES = {"go": "Go", "java": "Java", "typescript": "TypeScript", "rust": "Rust", "python": "Python", "raw": "frames by hand", "protoc": "protoc"}
OK, CANCELLED, UNKNOWN, INVALID, DEADLINE = 0, 1, 2, 3, 4
NOT_FOUND, EXHAUSTED, ABORTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 5, 8, 10, 12, 13, 14, 16
LARGE = 64 << 20


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
    """The details of an error, by kind."""
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
    worker = None

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

    # Stubs.

    def protoc(self, *arguments, folder, cwd=ROOT):
        languages.need("protoc")
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        return languages.run("protoc", "-I", ROOT / "proto", *arguments, cwd=cwd)

    @case(1, ("go",), "the README's line of protoc, `import \"baton.example/go/baton/v1\"`", "compiles")
    def test_001(self):
        self.stubs_compile()

    @case(2, ("go",), "`--go_opt=module=baton.example/go`", "files in the module")
    def test_002(self):
        self.stubs_compile()
        self.assertTrue((languages.COPY / "clients/go/baton/v1/inference_grpc.pb.go").exists())

    def stubs_compile(self):
        with self.program() as program:
            self.assertEqual(program.ask("ListModels").code, OK)

    @case(3, ("go",), "an `M` option for each file, to a path of one's own", "compiles")
    def test_003(self):
        with self.program():  # the module is built
            folder = languages.COPY / "clients/go/own"
            mapped = [f"M{name}=baton.example/go/own/v1" for name in self.public()]
            options = [f"--{kind}_opt={option}" for kind in ("go", "go-grpc") for option in ["module=baton.example/go/own", *mapped]]
            self.protoc(f"--go_out={folder}", f"--go-grpc_out={folder}", *options, *self.public(), folder=folder)
            languages.run("go", "build", "./own/...", cwd=folder.parent)

    @staticmethod
    def public():
        return [f"baton/v1/{name}.proto" for name in ("errors", "generation", "inference")]

    @case(4, ("java",), "`import io.grpc.*; import example.baton.v1.*;` and io.grpc's `Status`", "compiles")
    def test_004(self):
        self.compile_java("import io.grpc.*; import example.baton.v1.*; class Wild { Status status = Status.OK; ChatRequest request; }")

    @case(5, ("java",), "explicit imports; what routers and workers speak is not among the classes", "compiles; 0 of `Decode`, `Prefill`, `Worker`")
    def test_005(self):
        self.compile_java("import io.grpc.Status; import example.baton.v1.Message; class Wild { Status status = Status.OK; Message message; }")
        made = {path.stem for path in (languages.COPY / "clients/java/target/generated-sources").rglob("*.java")}
        self.assertIn("InferenceGrpc", made)
        self.assertFalse({name for name in made if name.startswith(("Decode", "Prefill", "Worker", "KvChunk"))} - {"DetokenizeRequest"})

    def compile_java(self, source):
        with self.program():  # the client is built
            command = languages.build("java")["plain"]
            folder = languages.COPY / "wild"
            folder.mkdir(exist_ok=True)
            (folder / "Wild.java").write_text(source)
            languages.run("javac", "-cp", command[2], "-d", folder, folder / "Wild.java")

    @case(6, ("typescript",), "proto-loader, with and without keepCase", "loads, and calls work")
    def test_006(self):
        with self.program():
            folder = self.node_packages("@grpc/proto-loader")
            script = """
import grpc from "@grpc/grpc-js"; import loader from "@grpc/proto-loader";
for (const keepCase of [false, true]) {
  const loaded = loader.loadSync("baton/v1/inference.proto", { includeDirs: [process.argv[2]], keepCase, longs: Number });
  const client = new (grpc.loadPackageDefinition(loaded).baton.v1.Inference)(process.argv[3], grpc.credentials.createInsecure());
  const stop = keepCase ? { max_tokens: 4, ignore_eos: true } : { maxTokens: 4, ignoreEos: true };
  for await (const message of client.generate({ text: "Once", stop })) {
    if (message.started) console.log(Number.isSafeInteger(message.started.seed));
    if (message.finished) console.log((message.finished.usage.completionTokens ?? message.finished.usage.completion_tokens));
  }
}
process.exit(0);
"""
            (folder / "loader.mjs").write_text(script)
            self.assertEqual(languages.run("node", "loader.mjs", ROOT / "proto", self.shared.address, cwd=folder).split(), ["true", "4"] * 2)

    @case(7, ("typescript",), "ts-proto with its defaults, whose numbers are doubles", "calls work: seeds that routers draw are below 2^53")
    def test_007(self):
        with self.program():
            folder = self.node_packages("ts-proto@2", "typescript@5")
            (folder / "src").mkdir(exist_ok=True)
            self.protoc(f"--plugin={folder}/node_modules/.bin/protoc-gen-ts_proto", f"--ts_proto_out={folder}/src", "--ts_proto_opt=outputServices=grpc-js,esModuleInterop=true", *self.public(), folder=folder)
            script = """
import * as grpc from "@grpc/grpc-js"; import { InferenceClient, GenerateRequest } from "./baton/v1/inference";
const client = new InferenceClient(process.argv[2]!, grpc.credentials.createInsecure());
const call = client.generate(GenerateRequest.fromPartial({ text: "Once", stop: { maxTokens: 4, ignoreEos: true } }));
call.on("data", (message) => { if (message.finished) console.log(message.finished.usage.completionTokens); });
call.on("end", () => process.exit(0));
"""
            (folder / "src/main.ts").write_text(script)
            options = ["--target", "es2022", "--module", "commonjs", "--moduleResolution", "node10", "--esModuleInterop", "--skipLibCheck", "--outDir", "made"]
            languages.run("node", "node_modules/typescript/bin/tsc", *options, "src/main.ts", cwd=folder)
            (folder / "made/package.json").write_text('{"type": "commonjs"}')
            for _ in range(10):  # each draws a seed
                self.assertEqual(languages.run("node", "made/main.js", self.shared.address, cwd=folder).strip(), "4")

    def node_packages(self, *names):
        folder = languages.COPY / "node" / names[0].split("/")[-1]
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / "package.json").write_text('{"private": true}')
            languages.run("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "@grpc/grpc-js", "@types/node@20", "@bufbuild/protobuf@2", *names, cwd=folder)
        return folder

    @case(8, ("rust",), "tonic-prost-build on the public protos", "compiles, and calls work")
    def test_008(self):
        self.stubs_compile()

    @case(9, ("python",), "grpc_tools on all of `proto/`, beside grpcio-health-checking and googleapis-common-protos in one process", "no clash")
    def test_009(self):
        folder = languages.COPY / "every"
        folder.mkdir(exist_ok=True)
        names = [str(path.relative_to(ROOT / "proto")) for path in sorted((ROOT / "proto").rglob("*.proto"))]
        languages.run(languages.PYTHON, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder}", f"--grpc_python_out={folder}", *names)
        packages = languages.COPY / "health"
        languages.run(languages.PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps", "--target", packages, "grpcio-health-checking==1.76.0")
        script = "from google.rpc import status_pb2, error_details_pb2; from grpc_health.v1 import health_pb2; from baton.v1 import inference_pb2_grpc, errors_pb2; print('well')"
        self.assertEqual(languages.run("env", f"PYTHONPATH={packages}:{folder}", languages.PYTHON, "-c", script).strip(), "well")

    @case(10, ("protoc",), "`protoc --X_out` of the public files for C#, Ruby, PHP, Objective-C, Kotlin and Java: their messages", "no error")
    def test_010(self):
        for kind in ("csharp", "ruby", "php", "objc", "kotlin", "java"):
            folder = languages.COPY / "protoc" / kind
            self.protoc(f"--{kind}_out={folder}", *self.public(), folder=folder)
            self.assertTrue([path for path in folder.rglob("*") if path.is_file()], kind)

    elsewhere(11, ("buf",), "`buf build`, `buf format -d`", "clean", "`scripts/check-protos`, in the gate")
    elsewhere(12, ("buf",), "`buf lint` STANDARD and COMMENTS", "clean, but for what `proto/buf.yaml` names", "`scripts/check-protos`, in the gate")
    elsewhere(13, ("buf",), "`buf breaking` against the last landed state", "clean", "`scripts/check-protos`, in the gate")

    # Calls.

    @case(14, ("go",), "Chat, ChatUnary, Generate, GenerateUnary, CountTokens, Tokenize, Detokenize, ListModels", "answers; `baton-usage-bin` is a RequestUsage")
    def test_014(self):
        with self.program() as program:
            self.every_answer(program)
            counted = inference.CountTokensResponse.FromString(program.ask("CountTokens", inference.CountTokensRequest(chat=question())).last)
            tokens = inference.TokenizeResponse.FromString(program.ask("Tokenize", inference.TokenizeRequest(chat=question())).last)
            self.assertEqual(counted.prompt_tokens, len(tokens.token_ids))
            text = inference.DetokenizeResponse.FromString(program.ask("Detokenize", inference.DetokenizeRequest(token_ids=tokens.token_ids, special_tokens=True)).last)
            self.assertEqual(text.text, tokens.text)

    @case(15, ("java", "typescript", "rust", "python"), "Chat, ChatUnary, Generate, GenerateUnary, ListModels", "answers; `baton-usage-bin` is there")
    def test_015(self):
        with self.program() as program:
            self.every_answer(program)

    def every_answer(self, program):
        wholes = {
            "Chat": question(),
            "ChatUnary": inference.ChatUnaryRequest(chat=question()),
            "Generate": stream_of(8),
            "GenerateUnary": inference.GenerateUnaryRequest(generate=stream_of(8)),
        }
        for method, request in wholes.items():
            result = program.ask(method, request)
            self.assertEqual(result.code, OK, (method, result))
            self.assertGreater(usage_of(result).usage.completion_tokens, 0)
            self.assertGreater(usage_of(result).cost.picos, 0)
        listed = inference.ListModelsResponse.FromString(program.ask("ListModels").last)
        self.assertEqual([model.name for model in listed.models], ["baton-tiny"])

    elsewhere(16, ("grpcurl",), "list, describe, calls by reflection", "work", "`tests/deploy/more_clients_test.py`; v1alpha of reflection is not tried")

    @case(17, ALL, "a deadline in a long stream", "DEADLINE_EXCEEDED; work stops")
    def test_017(self):
        with self.program() as program:
            result = program.ask("Generate", large(), deadline_ns=300_000_000)
            self.assertEqual(result.code, DEADLINE, result)
            self.idle()

    @case(18, ("raw",), "`grpc-timeout: 200m`, and a client that does no more", "the server ends it: grpc-status 4")
    def test_018(self):
        self.deadline_by_hand("200m")

    @case(19, ("raw",), "the trailers of 18, and of `99999999n`", "`baton-usage-bin`, with the cost, once a worker has accepted it")
    def test_019(self):
        for timeout in ("500m", "99999999n"):
            stream = self.deadline_by_hand(timeout)
            if inference.GenerateResponse.FromString(stream.messages[0]).HasField("started") if stream.messages else False:
                said = generation.RequestUsage.FromString(decoded(stream.trailers["baton-usage-bin"]))
                self.assertGreater(said.usage.prompt_tokens, 0)
                self.assertGreater(said.cost.picos, 0)

    def deadline_by_hand(self, timeout):
        connection = self.raw()
        import raw

        stream = connection.end(connection.open("baton.v1.Inference/Generate", raw.framed(large().SerializeToString()), grpc_timeout=timeout))
        self.assertEqual(stream.grpc_status, DEADLINE, (stream.headers, stream.trailers))
        return stream

    @case(20, ("go",), "`context.WithTimeout(ctx, math.MaxInt64)`", "OK")
    def test_020(self):
        self.far_deadlines(2**63 - 1)

    @case(21, ("go",), "the same with 100, 200 and 240 years", "OK")
    def test_021(self):
        for years in (100, 200, 240):
            self.far_deadlines(years * 365 * 86400 * 10**9)

    def far_deadlines(self, nanoseconds):
        with self.program() as program:
            for method, request in (
                ("ChatUnary", inference.ChatUnaryRequest(chat=question())),
                ("Generate", stream_of(4)),
                ("Tokenize", inference.TokenizeRequest(chat=question())),
                ("ListModels", None),
            ):
                result = program.ask(method, request, deadline_ns=nanoseconds)
                self.assertEqual(result.code, OK, (method, result))

    @case(22, ("raw",), "`grpc-timeout: 99999999H`, the largest that there is", "OK")
    def test_022(self):
        connection = self.raw()
        import raw

        for method, request in (("Generate", stream_of(4)), ("Tokenize", inference.TokenizeRequest(chat=question()))):
            stream = connection.end(connection.open(f"baton.v1.Inference/{method}", raw.framed(request.SerializeToString()), grpc_timeout="99999999H"))
            self.assertEqual(stream.grpc_status, OK, stream.trailers)

    elsewhere(23, ("Rust",), "`set_timeout` in a stream", "DEADLINE_EXCEEDED", "case 17 has it in all languages")

    @case(24, ALL, "cancel after the first message", "CANCELLED; work stops")
    def test_024(self):
        with self.program() as program:
            call = program.call("Generate", large(), stall=self.language != "rust")
            program.wait(call, "first")
            program.send(op="cancel", id=call)
            program.send(op="read", id=call)
            self.assertEqual(program.end(call).code, CANCELLED)
            self.idle()

    @case(25, ("go", "java", "python"), "the channel is closed in the middle", "work stops")
    def test_025(self):
        with self.program() as program:
            call = program.call("Generate", large(), stall=True)
            program.wait(call, "first")
            program.send(op="close")
            self.idle()

    @case(26, ("raw",), "RST_STREAM(CANCEL) in the middle", "work stops, and the connection lives")
    def test_026(self):
        connection = self.raw()
        import raw

        call = connection.open("baton.v1.Inference/Generate", raw.framed(large().SerializeToString()))
        connection.until(lambda: connection.streams[call].messages)
        connection.h2.reset_stream(call, 8)
        connection.flush()
        self.idle()
        self.assertEqual(connection.end(connection.open("baton.v1.Inference/ListModels", raw.framed(b""))).grpc_status, OK)

    @case(27, ("raw",), "no half-close after the request", "answered")
    def test_027(self):
        connection = self.raw()
        import raw

        stream = connection.end(connection.open("baton.v1.Inference/Generate", raw.framed(stream_of(4).SerializeToString()), end=False))
        self.assertEqual(stream.grpc_status, OK)

    @case(28, ("raw",), "no message; two messages to a server stream", "an error; the second is ignored, or an error")
    def test_028(self):
        connection = self.raw()
        import raw

        self.assertNotEqual(connection.end(connection.open("baton.v1.Inference/Generate")).grpc_status, OK)
        message = raw.framed(stream_of(4).SerializeToString())
        self.assertIsNotNone(connection.end(connection.open("baton.v1.Inference/Generate", message + message)).grpc_status)

    @case(29, ("raw",), "a message of 5 announced bytes, 2 sent, END_STREAM", "an error of methods with a prompt; gRPC 1.51 takes it for an empty message (ListModels: OK)")
    def test_029(self):
        connection = self.raw()
        broken = b"\0\0\0\0\5ab"
        self.assertNotEqual(connection.end(connection.open("baton.v1.Inference/Generate", broken)).grpc_status, OK)
        self.assertEqual(connection.end(connection.open("baton.v1.Inference/ListModels", broken)).grpc_status, OK)

    @case(30, ("raw",), "content-type `application/json`", "gRPC 1.51 answers it as gRPC")
    def test_030(self):
        connection = self.raw()
        import raw

        stream = connection.end(connection.open("baton.v1.Inference/ListModels", raw.framed(b""), content_type="application/json"))
        self.assertEqual((stream.status, stream.grpc_status), ("200", OK))

    @case(31, ("raw",), "the compressed flag without grpc-encoding", "gRPC 1.51 takes the message for one that is not compressed")
    def test_031(self):
        connection = self.raw()
        import raw

        stream = connection.end(connection.open("baton.v1.Inference/Generate", raw.framed(stream_of(4).SerializeToString(), flag=1)))
        self.assertEqual(stream.grpc_status, OK)

    @case(32, ALL, "200 streams on one channel", "all OK")
    def test_032(self):
        with self.program() as program:
            calls = [program.call("Generate", stream_of(8)) for _ in range(200)]
            self.all_well(program, calls)

    @case(33, ("go",), "1,000 streams over 20 channels at once", "OK, or RESOURCE_EXHAUSTED with a delay")
    def test_033(self):
        with contextlib.ExitStack() as stack:
            programs = [stack.enter_context(self.program()) for _ in range(20)]
            calls = [(program, program.call("Generate", stream_of(8))) for program in programs for _ in range(50)]
            for program, call in calls:
                result = program.end(call)
                if result.code != OK:
                    self.assertEqual(result.code, EXHAUSTED, result)
                    self.assertIn("RetryInfo", details_of(result))

    @case(34, ("go",), "20 streams with logprobs that read nothing (`--client-stall 1`)", "given up: `baton_router_clients_stalled_total` 20, nothing runs")
    def test_034(self):
        router = self.router("--client-stall", "1")
        with self.program(router.address) as program:
            for _ in range(20):
                program.call("Generate", large(), stall=True)
            until(lambda: router.metric("baton_router_clients_stalled_total") == 20, lambda: router.metric("baton_router_clients_stalled_total"))
            until(lambda: router.metric("baton_router_running") == 0, "they run")

    @case(35, ("go",), "the status that such a stream sees when it reads on", "ABORTED, or INTERNAL: grpc-go meets half a message first (docs/errors.md)")
    def test_035(self):
        self.assertIn(self.stalled().code, (ABORTED, INTERNAL))

    @case(36, ("java", "typescript", "python"), "the same", "ABORTED")
    def test_036(self):
        result = self.stalled()
        self.assertEqual(result.code, ABORTED, result)

    def stalled(self):
        router = self.router("--client-stall", "1")
        with self.program(router.address) as program:
            call = program.call("Generate", large(), stall=True)
            until(lambda: router.metric("baton_router_clients_stalled_total") == 1 or program.has(call, "end"), "it is not given up")
            program.send(op="read", id=call)
            return program.end(call)

    @case(37, ("typescript",), "`pause()` and `resume()` at every message", "all messages")
    def test_037(self):
        with self.program() as program:
            request = stream_of(200)
            request.output.even_frames = True
            request.options.speculation = generation.SPECULATION_OFF
            result = program.ask("Generate", request, pause=True, keep=True)
            messages = [inference.GenerateResponse.FromString(one) for one in result.kept]
            self.assertEqual((result.code, sum(one.delta.tokens for one in messages)), (OK, 200))

    @case(38, ALL, "a unary answer of 6 MB, default limits", "INVALID_ARGUMENT `ANSWER_TOO_LARGE`, before anything is computed")
    def test_038(self):
        before = self.worker.metric("baton_decode_steps_total")
        with self.program() as program:
            result = program.ask("GenerateUnary", inference.GenerateUnaryRequest(generate=large()))
            self.reason(result, INVALID, "ANSWER_TOO_LARGE")
            self.assertNotIn("baton-usage-bin", result.trailers)
        self.assertEqual(self.worker.metric("baton_decode_steps_total"), before)

    @case(39, ("go", "java", "typescript", "rust", "python"), "the same with `max_answer_bytes` and the client's limit at 16 MiB", "the answer")
    def test_039(self):
        with self.program(max_receive=17 << 20) as program:
            result = program.ask("GenerateUnary", inference.GenerateUnaryRequest(generate=large(2000), max_answer_bytes=16 << 20))
            self.assertEqual(result.code, OK, result)
            self.assertGreater(len(result.last), 4 << 20)

    @case(40, ("python", "go"), "a request that waits for its turn (`--worker-concurrency 1`): its headers", "at once, with `baton-request-id`")
    def test_040(self):
        router = self.router("--worker-concurrency", "1", "--client-stall", "3600")
        with self.program(router.address) as program:
            busy = large()
            busy.options.n = 1
            busy.output.token_ids = True
            first = program.call("Generate", busy, stall=True)
            program.wait(first, "first")
            second = program.call("Generate", stream_of(4))
            self.assertRegex(program.wait(second, "headers")["headers"]["baton-request-id"], "^[0-9a-f]{16}$")
            program.send(op="read", id=first)
            self.all_well(program, (first, second))

    @case(41, ("go",), "an unknown field, 9999", "ignored")
    def test_041(self):
        with self.program() as program:
            request = stream_of(4)
            request.MergeFromString(b"\xfa\xf0\x04\x01x")
            self.assertIn(b"\xfa\xf0\x04", request.SerializeToString())
            self.assertEqual(program.ask("Generate", request).code, OK)

    @case(42, ("go", "python"), "unknown values of enums: tool_choice.mode 99, ttl 77, overflow 55, show 55", "INVALID_ARGUMENT `INVALID_FIELD`, which names the field")
    def test_042(self):
        made = {name: question() for name in ("tool_choice.mode", "conversation.messages[0].cache.ttl", "overflow.mode", "thinking.show")}
        made["tool_choice.mode"].tool_choice.mode = 99
        made["conversation.messages[0].cache.ttl"].conversation.messages[0].cache.ttl = 77
        made["overflow.mode"].overflow.mode = 55
        made["thinking.show"].thinking.show = 55
        with self.program() as program:
            for field, request in made.items():
                found = self.reason(program.ask("Chat", request), INVALID, "INVALID_FIELD")
                self.assertEqual(found["BadRequest"].field_violations[0].field, field)

    @case(43, ("raw",), "text that is not UTF-8", "INVALID_ARGUMENT, which names the field")
    def test_043(self):
        connection = self.raw()
        import raw

        stream = connection.end(connection.open("baton.v1.Inference/Generate", raw.framed(b"\x12\x02\xff\xfe")))
        self.assertEqual(stream.grpc_status, INVALID)
        self.assertIn("text", (stream.trailers | stream.headers)["grpc-message"])

    @case(44, ("go",), "20 answers of 200 tokens at temperature 100", "valid UTF-8 only")
    def test_044(self):
        with self.program() as program:
            request = stream_of(200)
            request.sampling.temperature = 100
            calls = [program.call("Generate", request) for _ in range(20)]
            self.all_well(program, calls)

    @case(45, ("python",), "JSON mapping, there and back: optional 0 and false, seed 2^64-1, Struct, map", "equal")
    def test_045(self):
        from google.protobuf import json_format

        request = question()
        request.sampling.seed, request.sampling.temperature = 2**64 - 1, 0
        request.sampling.logit_bias[7] = 1.5
        request.tool_choice.parallel = False
        request.conversation.template_arguments["a"] = {"b": [1, None]}
        text = json_format.MessageToJson(request)
        self.assertEqual(json_format.Parse(text, inference.ChatRequest()), request)
        self.assertIn('"18446744073709551615"', text)

    @case(46, ("go", "python"), "an unknown method, an unknown service", "UNIMPLEMENTED")
    def test_046(self):
        with self.program() as program:
            for method in ("baton.v1.Inference/Nothing", "baton.v1.Nothing/Nothing"):
                self.assertEqual(program.ask(method).code, UNIMPLEMENTED)

    elsewhere(47, ("TypeScript",), "a field of the wrong case, a plain object for a Struct", "dropped by proto-loader without a word", "it never reaches the service; the client here has typed messages")

    # Limits, compression, connections.

    @case(48, ("go", "python"), "prompts of 1, 5 and 15.9 MiB", "INVALID_ARGUMENT `CONTEXT_LENGTH_EXCEEDED`")
    def test_048(self):
        with self.program() as program:
            for size in (1 << 20, 5 << 20, int(15.9 * (1 << 20))):
                self.reason(program.ask("Generate", inference.GenerateRequest(text="word " * (size // 5))), INVALID, "CONTEXT_LENGTH_EXCEEDED")

    @case(49, ("go", "python"), "a prompt of 16 MiB; of 20 MiB", "INVALID_ARGUMENT `REQUEST_TOO_LARGE`; RESOURCE_EXHAUSTED of gRPC itself")
    def test_049(self):
        with self.program() as program:
            result = program.ask("Generate", inference.GenerateRequest(text="x" * (16 << 20)))
            self.reason(result, INVALID, "REQUEST_TOO_LARGE")
            self.assertEqual(program.ask("Generate", inference.GenerateRequest(text="x" * (20 << 20))).code, EXHAUSTED)

    @case(50, ALL, "a request that is compressed with gzip", "answered, as without")
    def test_050(self):
        request = stream_of(16, sampling=generation.SamplingParams(seed=7))
        request.text *= 100
        unary = inference.GenerateUnaryRequest(generate=request)
        with self.program() as program:
            texts = [inference.GenerateUnaryResponse.FromString(program.ask("GenerateUnary", unary, gzip=gzip).last).choices[0].text for gzip in (False, True)]
            self.assertEqual(texts[0], texts[1])
            self.assertTrue(texts[0])

    @case(51, ("rust",), "`accept_compressed(Gzip)`", "an answer without compression")
    def test_051(self):
        with self.program() as program:
            result = program.ask("Generate", stream_of(4), gzip=True)
            self.assertEqual(result.code, OK)
            self.assertNotIn("grpc-encoding", result.headers)

    @case(52, ("go", "java"), "9,000 bytes of metadata while 3 streams run on the channel", "that call fails alone: RESOURCE_EXHAUSTED `METADATA_TOO_LARGE`")
    def test_052(self):
        self.large_metadata(3)

    @case(53, ("typescript", "rust"), "the same with 5 streams", "that call fails alone")
    def test_053(self):
        self.large_metadata(5)

    @case(54, ("python",), "the same with 3 streams", "that call fails alone")
    def test_054(self):
        self.large_metadata(3)

    def large_metadata(self, streams):
        with self.program() as program:
            request = large()
            request.options.n = 2
            running = [program.call("Generate", request, stall=True) for _ in range(streams)]
            for call in running:
                program.wait(call, "first")
            self.reason(program.ask("ListModels", metadata=[["x-big", "x" * 9000]]), EXHAUSTED, "METADATA_TOO_LARGE")
            self.assertEqual(program.ask("ListModels", metadata=[["x-big", "x" * 7000]]).code, OK)
            for call in running:
                program.send(op="read", id=call)
            self.all_well(program, running)

    @case(55, ("raw",), "a header list of 8,300 bytes on stream 3 while stream 1 runs; of 7,000 bytes", "stream 3 ends alone; OK")
    def test_055(self):
        connection = self.raw()
        import raw

        first = connection.open("baton.v1.Inference/Generate", raw.framed(stream_of(2000).SerializeToString()))
        connection.until(lambda: connection.streams[first].messages)
        second = connection.open("baton.v1.Inference/ListModels", raw.framed(b""), x_big="x" * 8300)
        third = connection.open("baton.v1.Inference/ListModels", raw.framed(b""), x_big="x" * 7000)
        self.assertEqual([connection.end(call).grpc_status for call in (second, third, first)], [EXHAUSTED, OK, OK])

    @case(56, ("go", "java"), "keepalive of 10 s without calls, two pings", "no GOAWAY; the next call on the same connection is OK")
    def test_056(self):
        self.pinging(10, 2)

    @case(57, ("rust", "python"), "keepalive of 1 s without calls, five pings", "no GOAWAY; the next call on the same connection is OK")
    def test_057(self):
        self.pinging(1, 5)

    def pinging(self, seconds, pings):
        proxy = PingCounter(self, self.shared.address)
        with self.program(proxy.address, keepalive_seconds=seconds) as program:
            self.assertEqual(program.ask("ListModels").code, OK)
            until(lambda: proxy.pings >= pings, lambda: f"{proxy.pings} pings")
            self.assertEqual(program.ask("ListModels").code, OK)
            self.assertEqual(proxy.made, 1)

    @case(58, ("go", "python"), "IPv6 `[::1]`; a Unix socket (`--listen unix:PATH`)", "work")
    def test_058(self):
        for listen in ("[::1]:0", f"unix:{self.folder}/{self.language}.sock"):
            router = self.router(listen=listen)
            with self.program(router.address) as program:
                self.assertEqual(program.ask("Generate", stream_of(4)).code, OK)

    @case(59, ("go",), "`--max-connection-age 1`: calls one after the other until the client has connected anew", "all OK")
    def test_059(self):
        router = self.router("--max-connection-age", "1")
        proxy = PingCounter(self, router.address)
        with self.program(proxy.address) as program:

            def moved():
                self.assertEqual(program.ask("ListModels").code, OK)
                return proxy.made > 1

            until(moved, "no new connection")

    CONFIG = (ROOT / "examples/service_config.json").read_text()

    @case(60, ("go",), "the service config of examples/ over two routers, waitForReady; one gets SIGTERM", "no failed call")
    def test_060(self):
        routers = [self.router("--drain-seconds", "1") for _ in range(2)]
        with self.program(addresses=[router.address for router in routers], service_config=self.CONFIG) as program:

            def both():
                self.assertEqual(program.ask("Generate", stream_of(4), wait=True).code, OK)
                return all(router.metric("baton_router_requests_total") for router in routers)

            until(both, "one router has no call")
            routers[0].process.popen.send_signal(signal.SIGTERM)
            while routers[0].process.popen.poll() is None:
                self.assertEqual(program.ask("Generate", stream_of(4), wait=True).code, OK)
            self.assertEqual(program.ask("Generate", stream_of(4), wait=True).code, OK)

    @case(61, ("java", "typescript", "python"), "the service config of examples/", "works")
    def test_061(self):
        with self.program(service_config=self.CONFIG) as program:
            self.assertEqual(program.ask("Generate", stream_of(4)).code, OK)

    elsewhere(62, ("TypeScript",), "hedging, 3 attempts", "one answer, computed once, with an idempotency key", "an answer with a key is computed once (`tests/e2e/resume_test.cc`); hedging itself is grpc-js's")

    @case(63, ("go", "java", "typescript", "rust", "python"), "the router restarts under a live channel", "the next call that waits, or is sent again, is OK")
    def test_063(self):
        router = self.router()
        with self.program(router.address) as program:
            self.assertEqual(program.ask("ListModels").code, OK)
            router.process.stop()
            again = self.router(listen=router.address)
            until(lambda: program.ask("ListModels").code == OK, "the channel does not come back")
            self.assertEqual(again.address, router.address)

    @case(64, ("go", "java", "typescript", "python"), "wait_for_ready while the router is down; without it", "waits, OK; UNAVAILABLE")
    def test_064(self):
        router = self.router()
        router.process.stop()
        with self.program(router.address) as program:
            waits = program.call("ListModels", wait=True)
            self.assertEqual(program.ask("ListModels").code, UNAVAILABLE)
            self.assertFalse(program.has(waits, "end"))
            self.router(listen=router.address)
            self.assertEqual(program.end(waits).code, OK)

    @case(65, ("go",), "SIGTERM while a stream runs, `--drain-seconds 600`", "health NOT_SERVING, the stream ends well, new calls elsewhere: UNAVAILABLE")
    def test_065(self):
        router = self.router("--drain-seconds", "600", "--client-stall", "3600")
        with self.program(router.address) as program:
            running = program.call("Generate", large(), stall=True)
            program.wait(running, "first")
            watch = program.call("grpc.health.v1.Health/Watch", None)
            program.wait(watch, "first")
            router.process.popen.send_signal(signal.SIGTERM)
            with self.program(router.address) as other:
                until(lambda: other.ask("ListModels").code == UNAVAILABLE, "new calls are taken")
            program.send(op="read", id=running)
            self.assertEqual(program.end(running).code, OK)

    @case(66, ALL, "SIGTERM, `--drain-seconds 0.1`, a stream that lasts longer", "UNAVAILABLE `ROUTER_DRAINING`, RetryInfo, `baton-usage-bin`")
    def test_066(self):
        router = self.router("--drain-seconds", "0.1")
        with self.program(router.address) as program:
            call = program.call("Generate", large())
            program.wait(call, "first")
            router.process.popen.send_signal(signal.SIGTERM)
            result = program.end(call)
            self.assertIn("RetryInfo", self.reason(result, UNAVAILABLE, "ROUTER_DRAINING"))
            self.assertGreater(usage_of(result).usage.completion_tokens, 0)

    @case(67, ("go", "python"), "a router without a reachable worker", "health NOT_SERVING; UNAVAILABLE `NO_WORKER` that names no address")
    def test_067(self):
        router = Service(self.addCleanup, "router", "--decode", "127.0.0.1:1")
        with self.program(router.address) as program:
            result = program.ask("Generate", stream_of(4))
            self.reason(result, UNAVAILABLE, "NO_WORKER")
            self.assertNotIn("127.0.0.1", result.message)
            if self.language == "go":
                self.assertEqual(program.ask("grpc.health.v1.Health/Check").last, b"\x08\x02")

    # Identity, errors, tracing.

    @classmethod
    def make_key(cls, tenant, **limits):
        """(the key, the tenants file)."""
        tenants, secret = cls.folder / f"{tenant}.json", cls.folder / f"{tenant}.key"
        if not tenants.exists():
            subprocess.run([BIN / "baton", "key", "new", "--tenant", tenant, "--key-file", secret, "--tenants", tenants], check=True, capture_output=True)
            said = json.loads(tenants.read_text())
            said["tenants"][0] |= limits
            tenants.write_text(json.dumps(said))
        return secret.read_text().strip(), tenants

    @case(68, ("go", "java", "typescript", "rust", "python"), "the key: right, scheme in any case, missing, wrong, with a suffix, without Bearer, Basic; in `x-api-key`", "OK, or UNAUTHENTICATED with `KEY_MISSING` or `KEY_UNKNOWN`")
    def test_068(self):
        key, tenants = self.make_key("search")
        router = self.router_with_tenants(tenants, key)
        with self.program(router.address) as program:
            for value in (f"Bearer {key}", f"bearer {key}"):
                self.assertEqual(program.ask("ListModels", metadata=[["authorization", value]]).code, OK)
            self.reason(program.ask("ListModels"), UNAUTHENTICATED, "KEY_MISSING")
            for value in ("Bearer bk_000000000000_wrong", f"Bearer {key}x"):
                self.reason(program.ask("ListModels", metadata=[["authorization", value]]), UNAUTHENTICATED, "KEY_UNKNOWN")
            for value in (key, f"Basic {key}"):
                self.assertEqual(program.ask("ListModels", metadata=[["authorization", value]]).code, UNAUTHENTICATED)
            self.assertEqual(program.ask("ListModels", metadata=[["x-api-key", key]]).code, OK)

    def router_with_tenants(self, tenants, key, *flags):
        made = Service(self.addCleanup, "router", "--decode", self.worker.address, "--tenants", tenants, *flags)
        with grpc.insecure_channel(made.address) as channel:
            stub = rpc.InferenceStub(channel)
            metadata = (("authorization", f"Bearer {key}"),)
            until(lambda: stub.GenerateUnary(inference.GenerateUnaryRequest(generate=stream_of(1)), metadata=metadata, wait_for_ready=True).choices, "no worker")
        return made

    @classmethod
    @functools.cache
    def tls(cls):
        """A router with TLS, tenants and an authority for clients, on a worker with TLS: the folder of certificates, the address, a key."""
        folder = cls.folder / "tls"
        folder.mkdir()
        ca, cert, key = make_certificates(folder)
        secret, tenants = cls.make_key("secure", certificates=["client.example"])
        tls = ["--tls-cert", cert, "--tls-key", key, "--tls-ca", ca]
        worker = Service(cls.addClassCleanup, "decode", "--threads", "1", "--kv-memory", "64MiB", *tls)
        router = Service(cls.addClassCleanup, "router", "--decode", worker.address, "--tenants", tenants, "--tls-client-ca", ca, *tls)
        return folder, router.address, secret

    @case(69, ("go", "java", "typescript", "rust", "python"), "TLS: the right authority, by name and by IP; another authority; plain text; TLS 1.1 (Go)", "OK, or UNAVAILABLE (tonic: CANCELLED)")
    def test_069(self):
        folder, address, secret = self.tls()
        metadata = [["authorization", f"Bearer {secret}"]]
        other = folder / "other"
        other.mkdir(exist_ok=True)
        for where in (address, address.replace("127.0.0.1", "localhost")):
            with self.program(where, ca=f"{folder}/ca.crt") as program:
                self.assertEqual(program.ask("ListModels", metadata=metadata).code, OK)
        wrong = [{"ca": make_certificates(other)[0]}, {}] + ([{"ca": f"{folder}/ca.crt", "tls10": True}] if self.language == "go" else [])
        for settings in wrong:
            with self.program(address, **settings) as program:
                # tonic calls a connection that the server closed CANCELLED or UNKNOWN.
                codes = (UNAVAILABLE, CANCELLED, UNKNOWN) if self.language == "rust" else (UNAVAILABLE,)
                self.assertIn(program.ask("ListModels", metadata=metadata).code, codes, settings)

    @case(70, ("go", "java", "typescript", "rust", "python"), "mutual TLS: the tenant's certificate; one of another authority; none, but a key", "OK; not OK; OK")
    def test_070(self):
        folder, address, secret = self.tls()
        other = folder / "other"
        other.mkdir(exist_ok=True)
        mine = make_certificates(folder, "client", "client.example")
        wrong = make_certificates(other, "client", "client.example")
        with self.program(address, ca=f"{folder}/ca.crt", cert=mine[1], key=mine[2]) as program:
            self.assertEqual(program.ask("ListModels").code, OK)
        with self.program(address, ca=f"{folder}/ca.crt", cert=wrong[1], key=wrong[2]) as program:
            self.assertNotEqual(program.ask("ListModels").code, OK)
        with self.program(address, ca=f"{folder}/ca.crt") as program:
            self.assertEqual(program.ask("ListModels", metadata=[["authorization", f"Bearer {secret}"]]).code, OK)

    @case(71, ("go", "python"), "a limit of 4 requests a minute is used up", "RESOURCE_EXHAUSTED `LIMIT_EXCEEDED`, `limit: request_rate`, RetryInfo and `grpc-retry-pushback-ms`")
    def test_071(self):
        key, tenants = self.make_key("few", requests_per_minute=4)
        router = self.router_with_tenants(tenants, key)
        with self.program(router.address) as program:
            metadata = [["authorization", f"Bearer {key}"]]
            results = [program.ask("Generate", stream_of(1), metadata=metadata) for _ in range(6)]
            found = self.reason(results[-1], EXHAUSTED, "LIMIT_EXCEEDED")
            self.assertEqual(found["ErrorInfo"].metadata["limit"], "request_rate")
            self.assertGreater(found["RetryInfo"].retry_delay.ToMilliseconds(), 0)
            self.assertGreater(int(results[-1].trailers["grpc-retry-pushback-ms"]), 0)

    @case(72, ("go", "java"), "the same under the service config, whose policy retries RESOURCE_EXHAUSTED, and a deadline before the pushback", "one attempt each: gRPC obeys the pushback")
    def test_072(self):
        key, tenants = self.make_key("few", requests_per_minute=4)
        router = self.router_with_tenants(tenants, key)
        with self.program(router.address, service_config=self.CONFIG) as program:
            metadata = [["authorization", f"Bearer {key}"]]
            refused = []
            while not refused:
                before = router.metric("baton_router_requests_total")
                result = program.ask("Generate", stream_of(1), metadata=metadata, deadline_ns=3_000_000_000)
                refused += [result] if result.code != OK else []
            self.assertIn(refused[0].code, (EXHAUSTED, DEADLINE))
            self.assertLessEqual(router.metric("baton_router_requests_total") - before, 1)

    elsewhere(73, ("Go, Java, TypeScript, Rust, Python",), "ErrorInfo, RetryInfo, BadRequest, RequestInfo decoded by each library's own classes", "decoded", "`tests/clients/clients_test.py`: the clients decode them")
    elsewhere(74, ("grpcurl",), "the same by reflection", "shown", "`tests/e2e/service_test.cc` asks reflection for `google.rpc`")

    @case(75, ("go", "python"), "details of: a bad temperature, an unknown model, no prompt, an unknown role", "a reason, and the field")
    def test_075(self):
        hot = stream_of(4, sampling=generation.SamplingParams(temperature=-1))
        role = inference.ChatRequest()
        role.conversation.messages.add(role="nope", content="x")
        with self.program() as program:
            for method, request, code, reason, field in (
                ("Generate", hot, INVALID, "INVALID_FIELD", "sampling.temperature"),
                ("Generate", stream_of(4, model="other"), NOT_FOUND, "MODEL_NOT_FOUND", "model"),
                ("Generate", inference.GenerateRequest(), INVALID, "INVALID_FIELD", "prompt"),
                ("Chat", role, INVALID, "INVALID_FIELD", "conversation.messages[0].role"),
            ):
                found = self.reason(program.ask(method, request), code, reason)
                self.assertEqual(found["BadRequest"].field_violations[0].field, field)

    @case(76, ALL, "the request's id in metadata, also of refused calls; `x-request-id`", "`baton-request-id`, as RequestInfo says; `x-request-id` comes back")
    def test_076(self):
        with self.program() as program:
            well = program.ask("Generate", stream_of(4), metadata=[["x-request-id", "mine"]])
            self.assertRegex(well.headers["baton-request-id"], "^[0-9a-f]{16}$")
            self.assertEqual(well.headers["x-request-id"], "mine")
            refused = program.ask("Generate", stream_of(4, model="other"))
            said = {**refused.headers, **refused.trailers}["baton-request-id"]
            self.assertEqual(said, details_of(refused)["RequestInfo"].request_id)

    elsewhere(77, ("grpcurl",), "W3C traceparent, a collector", "one trace with the caller's ids", "`tests/deploy/tracing_test.py`")

    @case(78, ("go",), "health: ``, `live`, `baton.v1.Inference`, `baton.v1.Inference/baton-tiny`; unknown", "SERVING; NOT_FOUND")
    def test_078(self):
        with self.program() as program:
            for name in ("", "live", "baton.v1.Inference", "baton.v1.Inference/baton-tiny"):
                self.assertEqual(program.ask("grpc.health.v1.Health/Check", HealthName(name)).last, b"\x08\x01", name)
            self.assertEqual(program.ask("grpc.health.v1.Health/Check", HealthName("nothing")).code, NOT_FOUND)

    @case(79, ("go",), "Health List", "all names")
    def test_079(self):
        with self.program() as program:
            result = program.ask("grpc.health.v1.Health/List", HealthName(""))
            self.assertEqual(result.code, OK, result)
            for name in (b"live", b"baton.v1.Inference", b"baton.v1.Inference/baton-tiny"):
                self.assertIn(name, result.last)

    @case(80, ("go",), "health without a key on a router with tenants", "answered (docs/channels.md)")
    def test_080(self):
        key, tenants = self.make_key("search")
        with self.program(self.router_with_tenants(tenants, key).address) as program:
            self.assertEqual(program.ask("grpc.health.v1.Health/Check", HealthName("baton.v1.Inference")).last, b"\x08\x01")

    elsewhere(81, ("all",), "reports of deadlines and cancellations that other servers ignore", "as cases 17, 18, 24 to 26", "")
    elsewhere(82, ("all",), "reports of too_many_pings, health, UTF-8, shutdown", "as cases 56, 57, 78, 43, 44, 65", "")
    elsewhere(83, ("all",), "reports of gzip and of messages over 4 MiB", "as cases 50, 38, 39", "")
    elsewhere(84, ("all",), "reports of a missing Go client, 64-bit numbers in TypeScript, metadata that kills a connection", "as cases 1, 7, 53; `clients/go`", "")


class HealthName:
    """A HealthCheckRequest."""

    def __init__(self, name):
        self.name = name.encode()

    def SerializeToString(self):
        return (b"\x0a" + bytes([len(self.name)]) + self.name) if self.name else b""


def table():
    lines = ["| # | by | case | expected |", "|---|---|---|---|"]
    for one in sorted(CASES, key=lambda one: one.number):
        who = ", ".join(NAMES.get(name, name) for name in one.who)
        lines.append(f"| {one.number} | {who} | {one.what} | {one.expected}{f'. Not here: {one.elsewhere}' if one.elsewhere else ''} |")
    return "\n".join(lines)


class Page(unittest.TestCase):
    def test_the_page_has_the_table(self):
        self.assertEqual([one.number for one in sorted(CASES, key=lambda one: one.number)], list(range(1, 85)))
        self.assertIn(table(), (ROOT / "docs/clients.md").read_text(), "tests/clients/cases_test.py --table prints it")


def tearDownModule():
    counts = collections.defaultdict(collections.Counter)
    for by_language in RESULTS.values():
        for language, verdict in by_language.items():
            counts[language][verdict] += 1
    for language, verdicts in counts.items():
        print(f"{NAMES[language]}: {', '.join(f'{count} {verdict}' for verdict, count in verdicts.items())}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["--table"]:
        print(table())
    else:
        unittest.main()
