"""Tools on offer, requests that call for one of them, results, and answers made from results."""

import dataclasses
import json
import random

from . import words
from .words import Split


@dataclasses.dataclass(frozen=True)
class ToolUse:
    tool: dict
    request: str
    arguments: dict
    result: str
    answer: str

    def call(self) -> dict:
        return {"type": "function", "function": {"name": self.tool["function"]["name"], "arguments": self.arguments}}


def _tool(name: str, description: str, /, **parameters: str) -> dict:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": properties, "required": list(properties)},
        },
    }


_CITY_TOPICS = ("weather", "time", "news", "map", "population", "temperature")
_WEATHERS = ("sunny", "rainy", "cloudy", "windy", "snowy", "warm", "cold")


def _about_city(rng: random.Random, split: Split) -> ToolUse:
    topic, city = rng.choice(_CITY_TOPICS), words.place(rng, split)
    value = {
        "weather": lambda: rng.choice(_WEATHERS), "time": lambda: f"{rng.randint(1, 12)} o'clock",
        "news": lambda: "quiet", "map": lambda: "ready", "population": lambda: words.number(rng, split),
        "temperature": lambda: f"{rng.randint(1, 35)} degrees",
    }[topic]()
    return ToolUse(
        _tool(f"get_{topic}", f"Get the {topic} of a city.", city="string"),
        rng.choice((f"What is the {topic} in {city}?", f"Tell me the {topic} in {city}.", f"Get the {topic} of {city}.")),
        {"city": city},
        rng.choice((value, json.dumps({topic: value}))),
        f"The {topic} in {city} is {value}.",
    )


def _about_person(rng: random.Random, split: Split) -> ToolUse:
    topic, person = rng.choice(("age", "phone", "score", "office")), words.name(rng, split)
    value = words.number(rng, split)
    return ToolUse(
        _tool(f"find_{topic}", f"Find the {topic} of a person.", name="string"),
        rng.choice((f"What is the {topic} of {person}?", f"Find the {topic} of {person}.")),
        {"name": person},
        rng.choice((value, json.dumps({topic: value}))),
        f"The {topic} of {person} is {value}.",
    )


def _timer(rng: random.Random, split: Split) -> ToolUse:
    minutes = rng.randint(2, 90)
    return ToolUse(
        _tool("set_timer", "Set a timer.", minutes="integer"),
        rng.choice((f"Set a timer for {minutes} minutes.", f"Please set a timer for {minutes} minutes.")),
        {"minutes": minutes},
        rng.choice(("ok", '{"status": "ok"}')),
        f"The timer is set for {minutes} minutes.",
    )


def _adder(rng: random.Random, split: Split) -> ToolUse:
    a, b = rng.randint(10, 9999), rng.randint(10, 9999)
    return ToolUse(
        _tool("add", "Add two numbers.", a="integer", b="integer"),
        rng.choice((f"Use the tool to add {a} and {b}.", f"What is {a} + {b}?")),
        {"a": a, "b": b},
        rng.choice((str(a + b), json.dumps({"sum": a + b}))),
        f"{a} + {b} = {a + b}.",
    )


def _light(rng: random.Random, split: Split) -> ToolUse:
    room, state = rng.choice(("kitchen", "garden", "hall", "bedroom", "office")), rng.choice(("on", "off"))
    return ToolUse(
        _tool("set_light", "Turn a light on or off.", room="string", state="string"),
        f"Turn the light in the {room} {state}.",
        {"room": room, "state": state},
        rng.choice(("ok", '{"status": "ok"}')),
        f"The light in the {room} is {state}.",
    )


_MAKERS = (_about_city, _about_city, _about_person, _timer, _adder, _light)


def draw_use(rng: random.Random, split: Split) -> ToolUse:
    return rng.choice(_MAKERS)(rng, split)


def draw_offer(rng: random.Random, split: Split, count: int) -> list[ToolUse]:
    """Uses of `count` different tools."""
    uses: dict[str, ToolUse] = {}
    while len(uses) < count:
        use = draw_use(rng, split)
        uses.setdefault(use.tool["function"]["name"], use)
    return list(uses.values())


def shuffled_keys(rng: random.Random, value):
    """The same JSON with its keys in sorted order half of the time: template engines differ in this."""
    if rng.random() < 0.5:
        return value
    return json.loads(json.dumps(value, sort_keys=True))
