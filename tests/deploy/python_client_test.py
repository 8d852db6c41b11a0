#!/usr/bin/env python3
"""The Python package (clients/python), built as a wheel and used from where it was installed: against a real service, and against a server that refuses
on purpose."""
import asyncio
import concurrent.futures
import pathlib
import subprocess
import sys
import tempfile
import unittest

import grpc

from relay import ROOT, Relay

_folder = tempfile.TemporaryDirectory()
HERE = pathlib.Path(_folder.name)
unittest.addModuleCleanup(_folder.cleanup)


def install():
    """Builds the wheel and unpacks it into a folder that Python then finds."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    copy = HERE / "source"  # the build leaves files behind
    (copy / "clients").mkdir(parents=True)
    subprocess.run(["cp", "-r", ROOT / "clients/python", copy / "clients/python"], check=True)
    subprocess.run(["cp", "-r", ROOT / "proto", copy / "proto"], check=True)
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", HERE / "wheel", copy / "clients/python"], check=True)
    (wheel,) = (HERE / "wheel").glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", HERE / "site", wheel], check=True)
    sys.path.insert(0, str(HERE / "site"))


install()

import baton_client  # noqa: E402
from baton.v1 import generation_pb2 as generation  # noqa: E402
from baton.v1 import inference_pb2 as inference  # noqa: E402
from baton.v1 import inference_pb2_grpc as rpc  # noqa: E402
from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from baton_client import AsyncClient, BatonError, Client, Text, Tool, tool  # noqa: E402

HELLO = "Hello! My name is Ada."


@tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"sunny in {city}"


class RealService(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.relay = Relay(folder.name, prefill=1, decode=1)
        cls.addClassCleanup(cls.relay.stop)
        cls.client = Client(cls.relay.router)
        cls.addClassCleanup(cls.client.close)

    def test_grpc_alone_with_the_service_config_and_gzip(self):
        config = (ROOT / "examples/service_config.json").read_text()
        request = inference.GenerateRequest(text="Once upon a time. " * 200)
        request.stop.max_tokens = 4
        request.sampling.seed = 7
        texts = []
        for options, compression in (((), None), ((("grpc.service_config", config),), grpc.Compression.Gzip)):
            with grpc.insecure_channel(self.relay.router, options=options, compression=compression) as channel:
                stub = rpc.InferenceStub(channel)
                answer = stub.GenerateUnary(inference.GenerateUnaryRequest(generate=request), timeout=60)
                texts.append(answer.choices[0].text)
                self.assertTrue(stub.ListModels(inference.ListModelsRequest(), timeout=60).models)
        self.assertTrue(texts[0])
        self.assertEqual(texts[0], texts[1])

    def test_the_package_is_the_installed_one(self):
        self.assertTrue(baton_client.__file__.startswith(str(HERE)))

    def test_whole_and_streamed_are_one(self):
        whole = self.client.complete(HELLO, temperature=0, timeout=120)
        self.assertIn("Ada", whole.text)
        self.assertEqual(whole.reason, "STOP_TOKEN")
        self.assertGreater(whole.usage.completion_tokens, 0)
        parts, stream = [], self.client.stream(HELLO, temperature=0)
        try:
            while True:
                parts.append(next(stream))
        except StopIteration as end:
            answer = end.value
        self.assertEqual("".join(part.text for part in parts if isinstance(part, Text)), whole.text)
        self.assertEqual(answer.text, whole.text)
        self.assertEqual(answer.usage.completion_tokens, whole.usage.completion_tokens)

    def test_what_is_sent_again_is_the_same_answer(self):
        request = inference.ChatRequest()
        request.options.idempotency_key = "again"
        first, second = (self.client.complete(HELLO, request=request, seed=5, max_tokens=20) for _ in range(2))
        self.assertEqual(first.started.request_id, second.started.request_id)
        self.assertEqual(first.text, second.text)
        with self.assertRaises(BatonError) as caught:
            self.client.complete("Another.", request=request)
        self.assertEqual((caught.exception.reason, caught.exception.field), ("IDEMPOTENCY_KEY_REUSED", "options.idempotency_key"))

    def test_the_loop_of_tools(self):
        answer = self.client.run("What is the weather in Oslo?", [get_weather], temperature=0)
        self.assertIn("sunny", answer.text)
        self.assertEqual(answer.reason, "STOP_TOKEN")
        first = self.client.run("What is the weather in Oslo?", [get_weather], temperature=0, rounds=1)
        self.assertEqual([(call.name, call.arguments) for call in first.calls], [("get_weather", {"city": "Oslo"})])

    def test_a_tool_that_fails_is_told_to_the_model(self):
        def broken(city):
            raise LookupError("no such city")

        told = []
        real = self.client.stub.ChatUnary
        self.client.stub.ChatUnary = lambda request, **more: told.append(request) or real(request, **more)
        try:
            self.client.run("What is the weather in Oslo?", [Tool("get_weather", "", get_weather.parameters, broken)], temperature=0, rounds=2)
        finally:
            self.client.stub.ChatUnary = real
        self.assertEqual(told[-1].chat.conversation.messages[-1].content, "error: LookupError: no such city")

    def test_a_schema_and_errors_with_reasons(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
        self.assertRegex(self.client.complete("A number?", schema=schema, max_tokens=60).text, r'^\{\s*"n"')
        with self.assertRaises(BatonError) as caught:
            self.client.complete("word " * 4000)
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED"))
        with self.assertRaises(BatonError) as caught:
            self.client.complete(HELLO, model="other")
        self.assertEqual((caught.exception.code, caught.exception.reason), (grpc.StatusCode.NOT_FOUND, "MODEL_NOT_FOUND"))
        self.assertEqual((caught.exception.metadata, caught.exception.field), ({"model": "other"}, "model"))
        self.assertRegex(caught.exception.request_id, "^[0-9a-f]{16}$")
        self.assertEqual([model.name for model in self.client.models()], ["baton-tiny"])

    def test_asyncio(self):
        async def run():
            async with AsyncClient(self.relay.router) as client:
                whole, tools = await asyncio.gather(
                    client.complete(HELLO, temperature=0), client.run("What is the weather in Oslo?", [get_weather], temperature=0)
                )
                parts = [part async for part in client.stream(HELLO, temperature=0)]
                return whole, tools, parts

        whole, tools, parts = asyncio.run(run())
        self.assertIn("sunny", tools.text)
        self.assertEqual("".join(part.text for part in parts[:-1]), whole.text)
        self.assertEqual(parts[-1].text, whole.text)


class Refusing(rpc.InferenceServicer):
    """Refuses the first `refusals` calls; `delay`: the seconds that it names, or None."""

    def __init__(self, refusals, code=grpc.StatusCode.RESOURCE_EXHAUSTED, delay=None, after=0):
        self.refusals, self.code, self.delay, self.after, self.calls = refusals, code, delay, after, 0

    def refuse(self, context):
        if self.delay is not None:
            details = status_pb2.Status(code=self.code.value[0], message="busy")
            info = error_details_pb2.RetryInfo()
            info.retry_delay.FromMilliseconds(int(self.delay * 1000))
            details.details.add().Pack(info)
            context.set_trailing_metadata((("grpc-status-details-bin", details.SerializeToString()),))
        context.abort(self.code, "busy")

    def ChatUnary(self, request, context):
        self.calls += 1
        if self.calls <= self.refusals:
            self.refuse(context)
        choice = inference.AnswerChoice(text="there", finished=generation.Finished(reason=generation.FINISH_REASON_LENGTH))
        return inference.ChatUnaryResponse(choices=[choice])

    def Chat(self, request, context):
        self.calls += 1
        for _ in range(self.after):
            yield inference.ChatResponse(delta=generation.Delta(text="a"))
        if self.calls <= self.refusals:
            self.refuse(context)
        yield inference.ChatResponse(delta=generation.Delta(text="b"))
        yield inference.ChatResponse(finished=generation.Finished(reason=generation.FINISH_REASON_LENGTH))


class Cutting(rpc.InferenceServicer):
    """Answers with the letters a to j. Its streams break off after so many tokens, one after the other; the last one does not."""

    def __init__(self, cuts):
        self.cuts, self.request, self.resumed = cuts, None, []

    def letters(self, after, context, response):
        cut = self.cuts.pop(0) if self.cuts else None
        if cut != 0:
            yield response(started=inference.Started(request_id="0123456789abcdef"))
        for letter in "abcdefghij"[after : None if cut is None else after + cut]:
            yield response(delta=generation.Delta(text=letter, tokens=1))
        if cut is not None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        yield response(finished=generation.Finished(reason=generation.FINISH_REASON_LENGTH))

    def Chat(self, request, context):
        self.request = request
        yield from self.letters(0, context, inference.ChatResponse)

    def Resume(self, request, context):
        self.resumed.append((request.after_tokens[0], request.chat))
        yield from self.letters(request.after_tokens[0], context, inference.ResumeResponse)


class Retries(unittest.TestCase):
    def client(self, servicer, **more):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        rpc.add_InferenceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(server.stop, None)
        client = Client(f"127.0.0.1:{port}", **more)
        self.addCleanup(client.close)
        return client

    def test_what_was_refused_for_load_is_sent_again(self):
        for code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE):
            servicer = Refusing(2, code, delay=0.01)
            self.assertEqual(self.client(servicer).complete("x", timeout=60).text, "there")
            self.assertEqual(servicer.calls, 3)

    def test_no_more_often_than_asked(self):
        servicer = Refusing(9, delay=0.01)
        with self.assertRaises(BatonError) as caught:
            self.client(servicer, attempts=3).complete("x")
        self.assertEqual(servicer.calls, 3)
        self.assertEqual(caught.exception.retry_after, 0.01)

    def test_not_beyond_the_deadline(self):
        servicer = Refusing(9, delay=1000)
        with self.assertRaises(BatonError):
            self.client(servicer).complete("x", timeout=60)
        self.assertEqual(servicer.calls, 1, "the server asks for more time than there is")

    def test_not_what_a_second_try_would_not_change(self):
        servicer = Refusing(9, grpc.StatusCode.INVALID_ARGUMENT)
        with self.assertRaises(BatonError):
            self.client(servicer).complete("x")
        self.assertEqual(servicer.calls, 1)

    def test_a_stream_goes_on_behind_what_came(self):
        servicer = Cutting([3, 0, 5])
        self.assertEqual([part.text for part in self.client(servicer, attempts=3).stream("x")], list("abcdefghij"))
        self.assertEqual([after for after, _ in servicer.resumed], [3, 3, 8])
        for _, request in servicer.resumed:
            self.assertEqual(request, servicer.request)
        self.assertTrue(servicer.request.options.idempotency_key)
        self.assertTrue(servicer.request.sampling.HasField("seed"))
        servicer = Cutting([3, 0, 0])
        with self.assertRaises(BatonError):
            list(self.client(servicer, attempts=3).stream("x"))
        self.assertEqual(len(servicer.resumed), 2, "two in a row that bring nothing")

    def test_a_stream_in_asyncio_too(self):
        servicer = Refusing(1, delay=0.01)
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        rpc.add_InferenceServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(server.stop, None)

        async def run():
            async with AsyncClient(f"127.0.0.1:{port}") as client:
                return [part.text async for part in client.stream("x")]

        self.assertEqual(asyncio.run(run()), ["b", "b"])


class Schemas(unittest.TestCase):
    def test_of_annotations(self):
        @tool(strict=True)
        def find(name: str, count: int = 3, kinds: list[str] | None = None) -> str:
            """Find things.

            More about it.
            """

        self.assertEqual((find.name, find.description, find.strict), ("find", "Find things.", True))
        self.assertEqual(find.parameters["required"], ["name"])
        self.assertEqual(find.parameters["properties"]["kinds"], {"type": "array", "items": {"type": "string"}})
        with self.assertRaises(TypeError):
            tool(lambda x: x)
        with self.assertRaises(TypeError):

            @tool
            def bad(x: set) -> None:
                pass


if __name__ == "__main__":
    unittest.main()
