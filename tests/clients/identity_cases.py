"""Cases of identity, errors and health: keys, TLS, limits of tenants, details, ids."""
import functools
import json
import subprocess

import grpc

from cases import ALL, CANCELLED, Cases, DEADLINE, EXHAUSTED, INVALID, NOT_FOUND, OK, SERVICE_CONFIG, UNAUTHENTICATED, UNAVAILABLE, UNKNOWN, case, details_of, elsewhere, stream_of
from certificates import make_certificates
from programs import Service
from relay import BIN, until
from servers import generation, inference, rpc


class HealthName:
    """A HealthCheckRequest."""

    def __init__(self, name):
        self.name = name.encode()

    def SerializeToString(self):
        return (b"\x0a" + bytes([len(self.name)]) + self.name) if self.name else b""


class Identity(Cases):
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
        with self.program(router.address, service_config=SERVICE_CONFIG) as program:
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
