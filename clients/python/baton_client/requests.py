"""Requests made of Python's values."""
import json
import random
import uuid

from baton.v1 import inference_pb2 as inference

MAX_ANSWER_BYTES = 16 << 20
_SEED_BITS = 52  # a double holds it
CHANNEL = [("grpc.max_receive_message_length", MAX_ANSWER_BYTES + (1 << 20))]


def message_of(message):
    """A baton.v1.Message of itself, of a dict of its fields, or of a text of the user's."""
    if isinstance(message, inference.Message):
        return message
    if isinstance(message, str):
        return inference.Message(role="user", content=message)
    return inference.Message(**message)


def chat_request(
    messages,
    *,
    request=None,
    model="",
    tools=(),
    max_tokens=None,
    temperature=None,
    top_p=None,
    top_k=None,
    seed=None,
    stop=(),
    schema=None,
    session="",
):
    """A ChatRequest. messages: a text, or a list of what message_of takes. request: what it begins with. It has an idempotency key and a seed: what is
    sent again takes the answer that was begun, on any router."""
    made = inference.ChatRequest()
    if request is not None:
        made.CopyFrom(request)
    if model:
        made.model = model
    listed = [messages] if isinstance(messages, (str, inference.Message, dict)) else messages
    made.conversation.messages.extend(message_of(message) for message in listed)
    made.conversation.tools.extend(one.message() for one in tools)
    for name, value in {"temperature": temperature, "top_p": top_p, "top_k": top_k, "seed": seed}.items():
        if value is not None:
            setattr(made.sampling, name, value)
    if max_tokens is not None:
        made.stop.max_tokens = max_tokens
    made.stop.stop.extend([stop] if isinstance(stop, str) else stop)
    if schema is not None:
        made.constraint.json_schema = schema if isinstance(schema, str) else json.dumps(schema)
    if session:
        made.options.session_id = session
    if not made.options.idempotency_key:
        made.options.idempotency_key = uuid.uuid4().hex
    if not made.sampling.HasField("seed"):
        made.sampling.seed = random.SystemRandom().getrandbits(_SEED_BITS)
    return made


def resume_request(request, started, tokens):
    """A ResumeRequest for what follows the first `tokens` tokens of the answer to `request`, by the build that began it."""
    made = inference.ResumeRequest(request_id=started.request_id, after_tokens=[tokens], chat=request)
    made.chat.options.build = started.build
    return made


def unary(request):
    """A ChatUnaryRequest. The answer may have as many bytes as a message can."""
    return inference.ChatUnaryRequest(chat=request, max_answer_bytes=MAX_ANSWER_BYTES)


def metadata_of(key):
    return (("authorization", f"Bearer {key}"),) if key else ()
