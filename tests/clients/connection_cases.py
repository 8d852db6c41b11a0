"""Cases of limits, compression and connections: large requests and metadata, keepalive, routers that come and go."""
import signal

from cases import ALL, SERVICE_CONFIG, Cases, EXHAUSTED, INVALID, OK, UNAVAILABLE, case, large, question, stream_of, usage_of
from programs import Service
from relay import until
from servers import PingCounter, generation, inference


class Connections(Cases):
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

    @case(60, ("go",), "the service config of examples/ over two routers, waitForReady; one gets SIGTERM", "no failed call")
    def test_060(self):
        routers = [self.router("--drain-seconds", "1") for _ in range(2)]
        with self.program(addresses=[router.address for router in routers], service_config=SERVICE_CONFIG) as program:

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
        with self.program(service_config=SERVICE_CONFIG) as program:
            self.assertEqual(program.ask("Generate", stream_of(4)).code, OK)

    @case(62, ALL, "three calls at a time with one idempotency key, as hedging makes them", "one answer, computed once")
    def test_062(self):
        request = inference.ChatUnaryRequest(chat=question())
        request.chat.options.idempotency_key, request.chat.sampling.seed = f"hedged in {self.language}", 7
        before = self.shared.metric("baton_router_answers_resumed_total")
        with self.program() as program:
            calls = [program.call("ChatUnary", request) for _ in range(3)]
            self.all_well(program, calls)
            answers = [inference.ChatUnaryResponse.FromString(program.end(call).last) for call in calls]
        self.assertEqual(len({answer.started.request_id for answer in answers}), 1)
        self.assertEqual(len({answer.choices[0].text for answer in answers}), 1)
        self.assertEqual(self.shared.metric("baton_router_answers_resumed_total") - before, 2)

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
