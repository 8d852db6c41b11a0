#!/usr/bin/env python3
"""The clients under clients/, each built in a copy and asked the same: against a real service, straight, with TLS and a key, and through a proxy that cuts
connections; and against servers that refuse, break off and answer on purpose. A language whose tools are missing is skipped."""
import base64
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "deploy"))

import grpc  # noqa: E402

import languages  # noqa: E402
from certificates import make_certificates  # noqa: E402
from relay import BIN, PATIENCE, Relay, lacking  # noqa: E402
from servers import REQUEST_ID, Cutting, CutProxy, Endless, Parts, Refusing, inference, serve  # noqa: E402

HELLO = "Hello! My name is Ada."


def question(text=HELLO, **stop):
    request = inference.ChatRequest()
    request.conversation.messages.add(role="user", content=text)
    request.stop.MergeFrom(type(request.stop)(**stop))
    return request


class Contract:
    """One class for each language: see the end."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.lack = None
        try:
            cls.commands = languages.build(cls.language)
            cls.command = cls.commands["probe"]
        except languages.Lacking as lack:
            cls.lack = str(lack)

    def setUp(self):
        if self.lack:
            lacking(self, self.lack)

    @staticmethod
    def asked(address, request, op="stream", key="", ca="", attempts=4, timeout=PATIENCE, leave=0):
        encoded = base64.b64encode(request.SerializeToString()).decode()
        return {"address": address, "request": encoded, "op": op, "key": key, "ca": ca, "attempts": attempts, "timeout": timeout, "leave": leave}

    def ask(self, address, request=None, **more):
        return languages.ask(self.command, **self.asked(address, request or question("x"), **more))

    def fails(self, said):
        self.assertIn("error", said)
        self.assertFalse(said.get("answer"))
        return said["error"]

    # A real service.

    def test_whole_and_streamed_are_one(self):
        relay = shared_relay()
        request = question()
        request.sampling.temperature = 0
        whole, streamed = (self.ask(relay.router, request, op=op) for op in ("complete", "stream"))
        self.assertIn("Ada", whole["answer"]["text"])
        self.assertEqual(whole["answer"]["reason"], "STOP_TOKEN")
        self.assertGreater(whole["answer"]["tokens"], 0)
        self.assertRegex(whole["answer"]["request_id"], "^[0-9a-f]{16}$")
        for field in ("text", "thinking", "calls", "reason", "tokens"):
            self.assertEqual(streamed["answer"][field], whole["answer"][field])
        self.assertEqual("".join(part[1] for part in streamed["parts"] if part[0] == "text"), whole["answer"]["text"])

    def test_the_example(self):
        if "example" in self.commands:
            said = languages.run(*self.commands["example"], shared_relay().router)
            self.assertRegex(said, r"Ada(.|\n)*\n(FINISH_REASON_)?STOP_TOKEN, \d+ tokens\n$")

    def test_a_call_of_a_tool(self):
        request = question("What is the weather in Oslo?")
        request.sampling.temperature = 0
        schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        request.conversation.tools.add(name="get_weather", description="Get the weather of a city.", parameters_json=json.dumps(schema))
        said = self.ask(shared_relay().router, request)
        self.assertEqual(said["answer"]["reason"], "TOOL_CALLS")
        ((_, name, arguments, complete),) = said["answer"]["calls"]
        self.assertEqual((name, json.loads(arguments), complete), ("get_weather", {"city": "Oslo"}, True))

    def test_a_refusal_has_its_reason(self):
        for op in ("complete", "stream"):
            request = question()
            request.model = "other"
            failed = self.fails(self.ask(shared_relay().router, request, op=op))
            self.assertEqual((failed["code"], failed["reason"], failed["field"]), (grpc.StatusCode.NOT_FOUND.value[0], "MODEL_NOT_FOUND", "model"))
            self.assertEqual(failed["metadata"], {"model": "other"})
            self.assertRegex(failed["request_id"], "^[0-9a-f]{16}$")

    def test_a_connection_that_is_cut(self):
        request = question("Tell me a story.", max_tokens=150, ignore_eos=True)
        request.sampling.seed = 7
        whole = self.ask(shared_relay().router, request)
        self.assertEqual(whole["answer"]["reason"], "LENGTH", whole)
        proxy = CutProxy(self, shared_relay().router, [1500, 1500, 1000])
        cut = self.ask(proxy.address, request)
        self.assertEqual(proxy.made, 4, cut)
        for field in ("text", "thinking", "calls", "reason", "tokens"):
            self.assertEqual(cut["answer"][field], whole["answer"][field])

    def test_tls_and_a_key(self):
        authority, certificate, key = make_certificates(self.folder)
        tenants, secret = pathlib.Path(self.folder, "tenants.json"), pathlib.Path(self.folder, "search.key")
        subprocess.run([BIN / "baton", "key", "new", "--tenant", "search", "--key-file", secret, "--tenants", tenants], check=True, capture_output=True)
        with tempfile.TemporaryDirectory() as folder:
            relay = Relay(folder, prefill=0, decode=1, more=["--tenants", tenants, "--tls-cert", certificate, "--tls-key", key, "--tls-ca", authority])
            self.addCleanup(relay.stop)
            where = relay.router.replace("127.0.0.1", "localhost")
            said = self.ask(where, question(max_tokens=4), key=secret.read_text().strip(), ca=authority)
            self.assertEqual(said.get("answer", {}).get("tokens"), 4, said)
            self.assertEqual(self.fails(self.ask(where, question(), ca=authority))["reason"], "KEY_MISSING")
            self.assertEqual(self.fails(self.ask(where, question(), ca=authority, key="bk_x"))["reason"], "KEY_UNKNOWN")

    # Servers of the test's.

    def test_a_stream_goes_on_behind_what_came(self):
        servicer = Cutting([3, 0, 5])
        said = self.ask(serve(self, servicer), attempts=3)
        self.assertEqual(said["parts"], [["text", letter] for letter in "abcdefghij"])
        self.assertEqual(said["answer"]["text"], "abcdefghij")
        self.assertEqual(said["answer"]["request_id"], REQUEST_ID)
        self.assertEqual([list(one.after_tokens) for one in servicer.resumed], [[3], [3], [8]])
        self.assertTrue(servicer.request.options.idempotency_key)
        self.assertTrue(servicer.request.sampling.HasField("seed"))
        self.assertLess(servicer.request.sampling.seed, 1 << 52)
        self.assertEqual(servicer.request.options.build, "")
        pinned = inference.ChatRequest()
        pinned.CopyFrom(servicer.request)
        pinned.options.build = servicer.build
        for one in servicer.resumed:
            self.assertEqual((one.request_id, one.chat), (REQUEST_ID, pinned))

    def test_a_stream_that_brings_nothing_is_given_up(self):
        # Progress is something that came, but it is not a part of the answer.
        servicer = Cutting([3, 0, 0, 0, 0, 0, 0, 0, 0])
        failed = self.fails(self.ask(serve(self, servicer), attempts=1))
        self.assertEqual((failed["code"], len(servicer.resumed)), (grpc.StatusCode.UNAVAILABLE.value[0], 0))

    def test_parts_are_folded(self):
        said = self.ask(serve(self, Parts()))
        calls = [["id-one", "one", '{"a":1}', True], ["id-two", "two", '{"b', False]]
        self.assertEqual(said["parts"], [["thinking", "hm"], ["thinking", "m"], ["text", "I "], ["text", "ask."], *(["call", *call] for call in calls)])
        answer = said["answer"]
        self.assertEqual((answer["text"], answer["thinking"], answer["calls"], answer["reason"]), ("I ask.", "hmm", calls, "LENGTH"))

    def test_a_large_answer(self):
        servicer = Parts()
        answer = self.ask(serve(self, servicer), op="complete")["answer"]
        self.assertEqual(len(answer["text"]), len(Parts.TEXT))
        self.assertEqual((answer["thinking"], answer["calls"]), ("hmm", [["id-one", "one", '{"a":1}', True]]))
        self.assertEqual(servicer.max_answer_bytes, 16 << 20)

    def test_leaving_the_loop_cancels(self):
        servicer = Endless()
        asked = self.asked(serve(self, servicer), question("x"), leave=3)
        with subprocess.Popen([*map(str, self.command), json.dumps(asked)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as probe:
            try:
                said = json.loads(probe.stdout.readline())
                self.assertEqual(said["parts"], [["text", "a"]] * 3)
                self.assertTrue(servicer.gone.wait(PATIENCE), "the call goes on")
            finally:
                probe.kill()

    def test_what_was_refused_for_load_is_sent_again(self):
        for code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE):
            for told in ({"delay": 0.01}, {"pushback": 10}, {}):
                servicer = Refusing(2, code, **told)
                self.assertEqual(self.ask(serve(self, servicer), op="complete")["answer"]["text"], "there")
                self.assertEqual(len(servicer.requests), 3)
                self.assertEqual(servicer.requests[0], servicer.requests[2], "the same request takes the same answer")
                self.assertTrue(servicer.requests[0].chat.options.idempotency_key)

    def test_no_more_often_than_asked(self):
        servicer = Refusing(9, delay=0.25)
        failed = self.fails(self.ask(serve(self, servicer), op="complete", attempts=3))
        self.assertEqual(len(servicer.requests), 3)
        self.assertEqual(failed, {
            "code": grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], "message": "busy", "reason": "OVERLOADED", "metadata": {"cause": "displaced"},
            "field": "options.priority", "retry_after": 0.25, "final": False, "request_id": REQUEST_ID,
        })  # fmt: skip

    def test_not_beyond_the_deadline(self):
        for told in ({"delay": 1000}, {"pushback": 1000000}):
            servicer = Refusing(9, **told)
            self.assertEqual(self.fails(self.ask(serve(self, servicer), op="complete"))["retry_after"], 1000)
            self.assertEqual(len(servicer.requests), 1, "the server asks for more time than there is")

    def test_not_what_a_second_try_would_not_change(self):
        for code, told in ((grpc.StatusCode.INVALID_ARGUMENT, {}), (grpc.StatusCode.RESOURCE_EXHAUSTED, {"pushback": -1})):
            servicer = Refusing(9, code, **told)
            self.assertEqual(self.fails(self.ask(serve(self, servicer), op="complete"))["final"], "pushback" in told)
            self.assertEqual(len(servicer.requests), 1)


_relay = []


def shared_relay():
    if not _relay:
        folder = tempfile.TemporaryDirectory()
        unittest.addModuleCleanup(folder.cleanup)
        _relay.append(Relay(folder.name, prefill=1, decode=1))
        unittest.addModuleCleanup(_relay[0].stop)
    return _relay[0]


for _language in languages.LANGUAGES:
    _name = f"{_language.capitalize()}Client"
    globals()[_name] = type(_name, (Contract, unittest.TestCase), {"language": _language})


class RustTraces(unittest.TestCase):
    """The other languages' clients leave this to gRPC's instrumentation."""

    def test_the_current_context_is_sent(self):
        class Telling(Parts):
            def Chat(self, request, context):
                self.metadata = dict(context.invocation_metadata())
                yield from super().Chat(request, context)

        try:
            command = languages.build("rust")["probe"]
        except languages.Lacking as lack:
            lacking(self, str(lack))
        servicer = Telling()
        languages.ask(command, **Contract.asked(serve(self, servicer), question("x")))
        self.assertEqual(servicer.metadata["traceparent"], "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")


if __name__ == "__main__":
    unittest.main()
