"""Cases of calls: answers, deadlines, cancellation, frames, many streams, slow readers, large answers, odd fields."""
import contextlib

from cases import ABORTED, ALL, CANCELLED, Cases, DEADLINE, EXHAUSTED, INTERNAL, INVALID, OK, UNIMPLEMENTED, case, decoded, details_of, elsewhere, large, question, stream_of, usage_of
from relay import until
from servers import generation, inference


class Calls(Cases):
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

    @case(19, ("raw",), "the trailers of 18, and of `99999999n`", "`baton-usage-bin`, with the cost, once a worker has accepted it (a router without CPU may be too late for that)")
    def test_019(self):
        self.deadline_by_hand("99999999n")

        def told():
            stream = self.deadline_by_hand("500m")
            if "baton-usage-bin" not in stream.trailers:
                return None
            return generation.RequestUsage.FromString(decoded(stream.trailers["baton-usage-bin"]))

        said = until(told, "no usage")
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
