"""Makes calls by plain gRPC, as lines of JSON on standard input say, and tells in lines of JSON how they go: "headers", "first" (message) and "end"."""
import base64
import json
import pathlib
import sys
import threading

import grpc
from baton.v1 import inference_pb2 as inference

output = threading.Lock()
SERVICE = inference.DESCRIPTOR.services_by_name["Inference"]


def tell(**event):
    with output:
        print(json.dumps(event), flush=True)


def plain(metadata):
    return {key: base64.b64encode(value).decode() if isinstance(value, bytes) else value for key, value in metadata or ()}


def read(path):
    return pathlib.Path(path).read_bytes() if path else None


def follow(call, asked, go_on):
    count, last, kept = 0, b"", []
    tell(id=asked["id"], event="headers", headers=plain(call.initial_metadata()))
    try:
        for message in call:
            count, last = count + 1, message.SerializeToString()
            kept += [base64.b64encode(last).decode()] if asked.get("keep") else []
            if count == 1:
                tell(id=asked["id"], event="first")
                if asked.get("stall"):
                    go_on.wait()
    except grpc.RpcError:
        pass  # code() says it
    said = {"headers": plain(call.initial_metadata()), "trailers": plain(call.trailing_metadata()), "last": base64.b64encode(last).decode(), "kept": kept}
    tell(id=asked["id"], event="end", code=call.code().value[0], message=call.details() or "", count=count, **said)


settings = json.loads(sys.stdin.readline())
options = [("grpc.max_receive_message_length", settings["max_receive"])] if settings.get("max_receive") else []
options += [("grpc.service_config", settings["service_config"])] if settings.get("service_config") else []
if settings.get("keepalive_seconds"):
    options += [("grpc.keepalive_time_ms", 1000 * settings["keepalive_seconds"]), ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0)]
if settings.get("ca"):
    credentials = grpc.ssl_channel_credentials(read(settings["ca"]), read(settings.get("key")), read(settings.get("cert")))
    channel = grpc.secure_channel(settings["address"], credentials, options)
else:
    channel = grpc.insecure_channel(settings["address"], options)
calls, reads = {}, {}
for line in sys.stdin:
    asked = json.loads(line)
    if asked["op"] == "call":
        method = SERVICE.methods_by_name.get(asked["method"].split("/")[1])
        request = method.input_type._concrete_class if method else inference.ListModelsRequest
        answer = method.output_type._concrete_class if method else inference.ListModelsResponse
        make = channel.unary_stream(f"/{asked['method']}", request.SerializeToString, answer.FromString)
        message = request.FromString(base64.b64decode(asked.get("request", "")))
        timeout = asked["deadline_ns"] / 1e9 if asked.get("deadline_ns") else None
        compression = grpc.Compression.Gzip if asked.get("gzip") else None
        call = make(message, timeout=timeout, metadata=[tuple(pair) for pair in asked.get("metadata", ())], compression=compression, wait_for_ready=asked.get("wait"))
        calls[asked["id"]], reads[asked["id"]] = call, threading.Event()
        threading.Thread(target=follow, args=(call, asked, reads[asked["id"]]), daemon=True).start()
    elif asked["op"] == "cancel":
        calls[asked["id"]].cancel()
    elif asked["op"] == "read":
        reads[asked["id"]].set()
    else:
        channel.close()
