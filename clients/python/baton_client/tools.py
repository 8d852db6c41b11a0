"""Tools: functions that a model may call, and the schemas of their arguments."""
import collections.abc
import dataclasses
import inspect
import json
import types
import typing

from baton.v1 import inference_pb2 as inference

_SIMPLE = {str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"}, bool: {"type": "boolean"}, dict: {"type": "object"}}


@dataclasses.dataclass(frozen=True)
class Tool:
    """parameters: JSON schema of the arguments, an object. strict: calls are drawn so that their arguments obey it."""

    name: str
    description: str
    parameters: dict
    function: collections.abc.Callable
    strict: bool = False

    def message(self):
        return inference.Tool(name=self.name, description=self.description, parameters_json=json.dumps(self.parameters), strict=self.strict)


def _schema_of(annotation, where):
    if annotation in _SIMPLE:
        return dict(_SIMPLE[annotation])
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is list and arguments:
        return {"type": "array", "items": _schema_of(arguments[0], where)}
    if origin in (typing.Union, types.UnionType):
        left = [one for one in arguments if one is not type(None)]
        if len(left) == 1:
            return _schema_of(left[0], where)
    raise TypeError(f"{where}: no schema is known for {annotation}; use str, int, float, bool, dict, list[...], Literal or make a Tool")


def tool(function=None, *, strict=False):
    """The Tool of a function: its name, its first paragraph of documentation, its annotations. Parameters with a default may be left out by the model."""
    if function is None:
        return lambda one: tool(one, strict=strict)
    properties, required = {}, []
    hints = typing.get_type_hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in hints:
            raise TypeError(f"{function.__name__}: the parameter {name} has no annotation")
        properties[name] = _schema_of(hints[name], f"{function.__name__}({name})")
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    description = (inspect.getdoc(function) or "").split("\n\n")[0]
    return Tool(function.__name__, description, schema, function, strict)


def result_message(call, content):
    """The message that answers a call."""
    return inference.Message(role="tool", tool_call_id=call.id, content=content if isinstance(content, str) else json.dumps(content))


def failure_of(error):
    """An exception of a tool, as its result: the model may try otherwise."""
    return f"error: {type(error).__name__}: {error}"
