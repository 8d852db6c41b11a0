"""Runs one request by the client, as its argument in JSON says, and prints in JSON what came of it."""
import base64
import dataclasses
import json
import pathlib
import sys

from baton.v1 import inference_pb2 as inference
from baton_client import BatonError, Client, Text, Thinking


def call_of(call):
    return list(dataclasses.astuple(call))


def failure_of(error):
    said = {"code": error.code.value[0], "message": error.message, "reason": error.reason, "metadata": error.metadata, "field": error.field}
    said |= {"final": error.final, "request_id": error.request_id}
    return said if error.retry_after is None else said | {"retry_after": error.retry_after}


def answer_of(answer):
    said = {"text": answer.text, "thinking": answer.thinking, "calls": [call_of(call) for call in answer.calls], "reason": answer.reason}
    return said | {"tokens": answer.usage.completion_tokens, "request_id": answer.started.request_id}


def follow(stream, leave, parts):
    try:
        while not leave or len(parts) < leave:
            part = next(stream)
            kind = "text" if isinstance(part, Text) else "thinking" if isinstance(part, Thinking) else "call"
            parts.append([kind, part.text] if kind != "call" else [kind, *call_of(part)])
    except StopIteration as end:
        return answer_of(end.value)
    stream.close()
    return None


asked = json.loads(sys.argv[1])
request = inference.ChatRequest.FromString(base64.b64decode(asked["request"]))
roots = pathlib.Path(asked["ca"]).read_bytes() if asked["ca"] else None
with Client(asked["address"], key=asked["key"], root_certificates=roots, attempts=asked["attempts"]) as client:
    said, parts, common = {}, [], {"request": request, "timeout": asked["timeout"]}
    try:
        if asked["op"] == "complete":
            said["answer"] = answer_of(client.complete([], **common))
        else:
            said["parts"] = parts
            said["answer"] = follow(client.stream([], **common), asked["leave"], parts)
    except BatonError as error:
        said["error"] = failure_of(error)
    print(json.dumps(said), flush=True)
    if asked["leave"]:
        sys.stdin.read(1)  # the connection stays, so that only the call can tell that the loop was left
