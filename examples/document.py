"""Questions about one long document: a mark keeps its KV in the cache, so each question after the first computes itself alone. Answers obey a schema."""
import json

import grpc
from baton.v1 import generation_pb2 as generation, inference_pb2 as pb, inference_pb2_grpc as rpc

DOCUMENT = "You know our handbook. " + " ".join(f"Room {room} is on floor {room // 10}." for room in range(10, 40))
SCHEMA = {"type": "object", "properties": {"floor": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["floor"], "additionalProperties": False}

stub = rpc.InferenceStub(grpc.insecure_channel("127.0.0.1:8470"))
for question in ("On which floor is room 25?", "On which floor is room 31?"):
    request = pb.ChatRequest(constraint=generation.Constraint(json_schema=json.dumps(SCHEMA)))
    request.conversation.messages.add(role="system", content=DOCUMENT, cache=pb.CacheMark(ttl=generation.CACHE_TTL_1H))
    request.conversation.messages.add(role="user", content=question)
    choice = stub.ChatUnary(pb.ChatUnaryRequest(chat=request)).choices[0]
    usage = choice.finished.usage
    print(f"floor {json.loads(choice.text)['floor']}: {usage.written_hour_tokens} tokens written, {usage.cached_tokens} found")
