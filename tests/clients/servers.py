"""Services that clients are tried against, beside the real one: one that refuses, one whose streams break off, one that tells what it wants; and a
proxy that cuts connections."""
import concurrent.futures
import contextlib
import socket
import struct
import threading

import grpc

import languages

languages.make_python_stubs()

from baton.v1 import generation_pb2 as generation  # noqa: E402
from baton.v1 import inference_pb2 as inference  # noqa: E402
from baton.v1 import inference_pb2_grpc as rpc  # noqa: E402
from google.rpc import error_details_pb2, status_pb2  # noqa: E402

REQUEST_ID = "0123456789abcdef"
LENGTH = generation.Finished(reason=generation.FINISH_REASON_LENGTH, usage=generation.Usage(completion_tokens=10))


def serve(case, servicer):
    """The address. The server ends with the test."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=[("grpc.max_send_message_length", -1)])
    rpc.add_InferenceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    case.addCleanup(lambda: server.stop(None).wait())
    return f"127.0.0.1:{port}"


class Refusing(rpc.InferenceServicer):
    """Refuses the first `refusals` calls, with all details. delay: the seconds that RetryInfo names; pushback: of the trailer."""

    def __init__(self, refusals, code=grpc.StatusCode.RESOURCE_EXHAUSTED, delay=None, pushback=None):
        self.refusals, self.code, self.delay, self.pushback, self.requests = refusals, code, delay, pushback, []

    def ChatUnary(self, request, context):
        self.requests.append(request)
        if len(self.requests) > self.refusals:
            return inference.ChatUnaryResponse(started=inference.Started(request_id=REQUEST_ID), choices=[inference.AnswerChoice(text="there", finished=LENGTH)])
        status = status_pb2.Status(code=self.code.value[0], message="busy")
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason="OVERLOADED", domain="baton", metadata={"cause": "displaced"}))
        violation = error_details_pb2.BadRequest.FieldViolation(field="options.priority", description="too high")
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
        status.details.add().Pack(error_details_pb2.RequestInfo(request_id=REQUEST_ID))
        if self.delay is not None:
            info = error_details_pb2.RetryInfo()
            info.retry_delay.FromMilliseconds(int(self.delay * 1000))
            status.details.add().Pack(info)
        trailer = [("grpc-status-details-bin", status.SerializeToString())]
        if self.pushback is not None:
            trailer.append(("grpc-retry-pushback-ms", str(self.pushback)))
        context.set_trailing_metadata(trailer)
        return context.abort(self.code, "busy")


class Cutting(rpc.InferenceServicer):
    """Answers with the letters a to j, and with events that a client has no use for. Its streams break off after so many tokens, one after the other;
    the last one does not."""

    def __init__(self, cuts, build="feedfacefeedface"):
        self.cuts, self.build, self.request, self.resumed = cuts, build, None, []

    def letters(self, after, context, response):
        cut = self.cuts.pop(0) if self.cuts else None
        yield response(progress=generation.Progress(state=generation.Progress.STATE_COMPUTING, prompt_tokens=7))
        if cut != 0:
            yield response(started=inference.Started(request_id=REQUEST_ID, seed=self.request.sampling.seed, build=self.build))
        for letter in "abcdefghij"[after : None if cut is None else after + cut]:
            yield response(delta=generation.Delta(text=letter, tokens=1))
        if cut is not None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
        yield response(finished=LENGTH)

    def Chat(self, request, context):
        self.request = request
        yield from self.letters(0, context, inference.ChatResponse)

    def Resume(self, request, context):
        self.resumed.append(request)
        yield from self.letters(request.after_tokens[0], context, inference.ResumeResponse)


class Parts(rpc.InferenceServicer):
    """Thinks, answers and calls two tools, the second of which is cut off; once with all of it in pieces, once whole and 6 MiB large."""

    TEXT = "x" * (6 << 20)

    def Chat(self, request, context):
        yield inference.ChatResponse(started=inference.Started(request_id=REQUEST_ID, output_format="any"))
        event, start = generation.PartEvent, generation.PartStart
        for kind, name, pieces, complete in (
            (start.KIND_THINKING, "", ["hm", "m"], True),
            (start.KIND_TEXT, "", ["I ", "", "ask."], True),
            (start.KIND_TOOL_CALL, "one", ['{"a"', ":1}"], True),
            (start.KIND_TOOL_CALL, "two", ['{"b'], False),
        ):
            events = [event(start=start(kind=kind, id=f"id-{name}" if name else "", name=name))]
            events += [event(arguments_json=piece) if name else event(text=piece) for piece in pieces]
            for one in [*events, event(end=generation.PartEnd(complete=complete))]:
                text = one.text if kind == start.KIND_TEXT and one.HasField("text") else ""
                yield inference.ChatResponse(delta=generation.Delta(text=text, tokens=1, parts=[one]))
        yield inference.ChatResponse(finished=LENGTH)

    def ChatUnary(self, request, context):
        self.max_answer_bytes = request.max_answer_bytes
        call = inference.ToolCall(id="id-one", name="one", arguments_json='{"a":1}')
        parts = [inference.AnswerPart(thinking="hmm", complete=True), inference.AnswerPart(text=self.TEXT, complete=True), inference.AnswerPart(tool_call=call, complete=True)]
        choice = inference.AnswerChoice(text=self.TEXT, parts=parts, finished=LENGTH)
        return inference.ChatUnaryResponse(started=inference.Started(request_id=REQUEST_ID), choices=[choice])


class Endless(rpc.InferenceServicer):
    """Answers until the client cancels; `gone` is set then."""

    def __init__(self):
        self.gone = threading.Event()

    def Chat(self, request, context):
        context.add_callback(self.gone.set)
        yield inference.ChatResponse(started=inference.Started(request_id=REQUEST_ID))
        while not self.gone.wait(0.01):  # a breath between two tokens, so that the answer does not fill the client's window
            yield inference.ChatResponse(delta=generation.Delta(text="a", tokens=1))


class Proxy:
    """Forwards connections, and counts them."""

    def __init__(self, case, target):
        self.target, self.made = target, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        case.addCleanup(self.listener.close)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            number, self.made = self.made, self.made + 1
            host, port = self.target.rsplit(":", 1)
            server = socket.create_connection((host, int(port)))
            threading.Thread(target=self.to_server, args=(number, client, server), daemon=True).start()
            threading.Thread(target=self.to_client, args=(number, server, client), daemon=True).start()


class CutProxy(Proxy):
    """The first connections are reset after so many bytes that came from the server."""

    def __init__(self, case, target, cuts):
        self.cuts = list(cuts)
        super().__init__(case, target)

    def to_server(self, number, client, server):
        self._forward(client, server, None)

    def to_client(self, number, server, client):
        self._forward(server, client, self.cuts[number] if number < len(self.cuts) else None)

    @staticmethod
    def _forward(source, target, left):
        try:
            while left != 0 and (data := source.recv(4096 if left is None else min(4096, left))):
                target.sendall(data)
                left = None if left is None else left - len(data)
            if left == 0:
                for one in (source, target):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets
            # It wakes the other thread, which may hold a socket open. A reset comes without the end of what was sent.
            for one in (source, target):
                one.shutdown(socket.SHUT_RD if left == 0 else socket.SHUT_RDWR)
        except OSError:
            pass
        source.close()
        target.close()


class PingCounter(Proxy):
    """Counts the pings that clients send."""

    PREFACE = 24  # bytes before a client's first frame
    PING = 6

    def __init__(self, case, target):
        self.pings = 0
        super().__init__(case, target)

    def to_server(self, number, client, server):
        self._forward(client, server, True)

    def to_client(self, number, server, client):
        self._forward(server, client, False)

    def _forward(self, source, target, counts):
        unread, skip = b"", self.PREFACE
        try:
            while data := source.recv(65536):
                target.sendall(data)
                unread += data
                while counts and len(unread) >= skip + 9:
                    size, kind, flags = int.from_bytes(unread[skip : skip + 3], "big"), unread[skip + 3], unread[skip + 4]
                    self.pings += kind == self.PING and not flags & 1
                    unread, skip = unread[skip:], 9 + size
                unread = unread if counts else b""
        except OSError:
            pass
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
