"""HTTP/2 frames by hand, for what no library of gRPC would send."""
import socket
import struct

import languages

languages.package("h2==4.4.1")

import h2.config  # noqa: E402
import h2.connection  # noqa: E402
import h2.events  # noqa: E402

from relay import PATIENCE  # noqa: E402


def framed(message, flag=0):
    """A message of gRPC's wire."""
    return struct.pack(">BI", flag, len(message)) + message


class Stream:
    def __init__(self):
        self.status, self.headers, self.trailers, self.data, self.ended, self.reset = None, {}, {}, b"", False, None

    @property
    def grpc_status(self):
        said = {**self.headers, **self.trailers}.get("grpc-status")
        return None if said is None else int(said)

    @property
    def messages(self):
        found, rest = [], self.data
        while len(rest) >= 5:
            size = struct.unpack(">I", rest[1:5])[0]
            found.append(rest[5 : 5 + size])
            rest = rest[5 + size :]
        return found


class Connection:
    def __init__(self, case, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)
        case.addCleanup(self.socket.close)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8", validate_outbound_headers=False))
        self.h2.initiate_connection()
        self.streams, self.acknowledged, self.terminated, self.closed = {}, 0, None, False
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def open(self, method, body=b"", end=True, **headers):
        """A call's stream. headers: with _ for -."""
        number = self.h2.get_next_available_stream_id()
        first = {":method": "POST", ":scheme": "http", ":path": f"/{method}", ":authority": "localhost", "te": "trailers", "content-type": "application/grpc"}
        first |= {name.replace("_", "-"): value for name, value in headers.items()}
        self.h2.send_headers(number, list(first.items()))
        self.h2.send_data(number, body, end_stream=end)
        self.streams[number] = Stream()
        self.flush()
        return number

    def until(self, ready):
        """Reads until ready() or until the connection ends."""
        while not ready() and not self.closed:
            data = self.socket.recv(65536)
            self.closed = not data
            for event in self.h2.receive_data(data):
                self._take(event)
            if not self.closed:
                self.flush()
        return ready()

    def _take(self, event):
        stream = self.streams.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.ResponseReceived):
            stream.headers |= dict(event.headers)
            stream.status = stream.headers[":status"]
        elif isinstance(event, h2.events.TrailersReceived):
            stream.trailers |= dict(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            stream.data += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            stream.ended = True
        elif isinstance(event, h2.events.StreamReset):
            stream.reset, stream.ended = event.error_code, True
        elif isinstance(event, h2.events.PingAckReceived):
            self.acknowledged += 1
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.terminated = event.error_code

    def end(self, number):
        """The stream, once it has ended."""
        self.until(lambda: self.streams[number].ended)
        return self.streams[number]

    def ping(self):
        self.h2.ping(b"12345678")
        self.flush()
