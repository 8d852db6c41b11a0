"""What the model wrote, as typed parts; and the stream of an answer folded into them."""
import dataclasses
import json

from baton.v1 import generation_pb2 as generation
from baton.v1 import inference_pb2 as inference


@dataclasses.dataclass(frozen=True)
class Text:
    """A piece of the answer itself."""

    text: str


@dataclasses.dataclass(frozen=True)
class Thinking:
    """A piece of what the model wrote for itself before."""

    text: str


@dataclasses.dataclass(frozen=True)
class ToolCall:
    """A call of a tool. `complete` is false if the answer ended inside it: don't run it then."""

    id: str
    name: str
    arguments_json: str
    complete: bool

    @property
    def arguments(self):
        """The arguments as a dict. ValueError if they are not whole."""
        if not self.complete:
            raise ValueError(f"the call of {self.name} was cut off")
        return json.loads(self.arguments_json or "{}")


@dataclasses.dataclass(frozen=True)
class Answer:
    """One whole answer."""

    text: str
    thinking: str
    calls: tuple[ToolCall, ...]
    reason: str  # the FinishReason without its prefix: STOP_TOKEN, LENGTH, TOOL_CALLS and so on
    started: inference.Started
    finished: generation.Finished

    @property
    def usage(self):
        return self.finished.usage

    def message(self):
        """The answer as the next message of its conversation."""
        calls = [inference.ToolCall(id=call.id, name=call.name, arguments_json=call.arguments_json) for call in self.calls if call.complete]
        return inference.Message(role="assistant", content=self.text, reasoning_content=self.thinking, tool_calls=calls)


def reason_of(finished):
    return generation.FinishReason.Name(finished.reason).removeprefix("FINISH_REASON_")


def answer_of(whole):
    """An Answer of a ChatUnaryResponse's first choice."""
    choice = whole.choices[0]
    calls = tuple(
        ToolCall(part.tool_call.id, part.tool_call.name, part.tool_call.arguments_json, part.complete)
        for part in choice.parts
        if part.HasField("tool_call")
    )
    thinking = "".join(part.thinking for part in choice.parts)
    return Answer(choice.text, thinking, calls, reason_of(choice.finished), whole.started, choice.finished)


class Fold:
    """The messages of one answer, in their order, from one stream or from several that go on with it. `push` gives the parts that each one completes;
    `answer` is there after the last one. `started` is None before the first."""

    def __init__(self):
        self._text, self._thinking, self._calls = [], [], []
        self._kind, self._call, self._arguments = None, None, []
        self._started = inference.Started()
        self.answer, self.tokens = None, 0

    @property
    def started(self):
        return self._started if self._started.request_id else None

    def push(self, message):
        self.tokens += message.delta.tokens
        if message.HasField("started"):
            self._started = message.started
        elif message.HasField("finished"):
            self.answer = Answer(
                "".join(self._text), "".join(self._thinking), tuple(self._calls), reason_of(message.finished), self._started, message.finished
            )
        elif message.delta.parts or self._started.output_format:
            for event in message.delta.parts:
                yield from self._push_part(event)
        elif message.delta.text:
            self._text.append(message.delta.text)
            yield Text(message.delta.text)

    def _push_part(self, event):
        if event.HasField("start"):
            self._kind, self._call, self._arguments = event.start.kind, event.start, []
        elif event.HasField("text"):
            thinks = self._kind == generation.PartStart.KIND_THINKING
            (self._thinking if thinks else self._text).append(event.text)
            if event.text:
                yield (Thinking if thinks else Text)(event.text)
        elif event.HasField("arguments_json"):
            self._arguments.append(event.arguments_json)
        elif event.HasField("end") and self._kind == generation.PartStart.KIND_TOOL_CALL:
            call = ToolCall(self._call.id, self._call.name, "".join(self._arguments), event.end.complete)
            self._calls.append(call)
            yield call
