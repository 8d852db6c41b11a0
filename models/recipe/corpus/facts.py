"""Facts: how one is stated (by the user, or in the system prompt), asked for, and answered.

The answer repeats the words of the statement, because a small model finds a value by the words in front of it.
"""

import dataclasses
import random

from . import words
from .words import Split


@dataclasses.dataclass(frozen=True)
class Fact:
    kind: str  # name | number | colour | place | word
    topic: str  # two facts of one conversation never share it
    value: str
    by_user: tuple[str, ...]  # ways for the user to state it
    by_system: tuple[str, ...]  # ways for the system prompt to state it
    questions: tuple[str, ...]
    answer: str
    unknown: str  # what to answer when nobody stated it


def _owned(kind: str, key: str, value: str) -> Fact:
    return Fact(
        kind, key, value,
        by_user=(f"My {key} is {value}.",),
        by_system=(f"The user's {key} is {value}.",),
        questions=(
            f"What is my {key}?", f"What is my {key}?", f"Do you remember my {key}?", f"Tell me my {key}.",
            f"Can you tell me my {key}?", f"Remind me, what is my {key}?", f"And what is my {key}?",
            f"What's my {key}?", f"Please tell me what my {key} is.",
        ),
        answer=f"Your {key} is {value}.",
        unknown=f"I don't know your {key} yet.",
    )


def _called(relation: str, value: str) -> Fact:
    return Fact(
        "name", relation, value,
        by_user=(f"My {relation} is called {value}.", f"My {relation}'s name is {value}."),
        by_system=(f"The user's {relation} is called {value}.",),
        questions=(
            f"What is my {relation} called?", f"What is the name of my {relation}?", f"What is my {relation}'s name?",
            f"Do you remember what my {relation} is called?", f"Tell me the name of my {relation}.",
        ),
        answer=f"Your {relation} is called {value}.",
        unknown=f"I don't know what your {relation} is called.",
    )


def _coloured(thing: str, value: str) -> Fact:
    return Fact(
        "colour", thing, value,
        by_user=(f"My {thing} is {value}.",),
        by_system=(f"The user's {thing} is {value}.",),
        questions=(
            f"What colour is my {thing}?", f"What color is my {thing}?", f"Do you remember what colour my {thing} is?",
            f"Which colour is my {thing}?",
        ),
        answer=f"Your {thing} is {value}.",
        unknown=f"I don't know what colour your {thing} is.",
    )


def _located(verb: str, question: str, value: str) -> Fact:
    third = {"live": "lives", "work": "works", "was born": "was born", "study": "studies"}[verb]
    second = {"was born": "were born"}.get(verb, verb)
    return Fact(
        "place", verb, value,
        by_user=(f"I {verb} in {value}.",),
        by_system=(f"The user {third} in {value}.",),
        questions=(question, question, f"Do you remember where I {verb}?", f"Tell me where I {verb}."),
        answer=f"You {second} in {value}.",
        unknown=f"I don't know where you {second}.",
    )


def _relative_lives(relation: str, value: str) -> Fact:
    return Fact(
        "place", relation + " lives", value,
        by_user=(f"My {relation} lives in {value}.",),
        by_system=(f"The user's {relation} lives in {value}.",),
        questions=(f"Where does my {relation} live?", f"Tell me where my {relation} lives."),
        answer=f"Your {relation} lives in {value}.",
        unknown=f"I don't know where your {relation} lives.",
    )


def _plain(kind: str, key: str, value: str) -> Fact:
    return Fact(
        kind, key, value,
        by_user=(f"The {key} is {value}.",),
        by_system=(f"The {key} is {value}.",),
        questions=(
            f"What is the {key}?", f"Do you remember the {key}?", f"Tell me the {key}.", f"Can you tell me the {key}?",
        ),
        answer=f"The {key} is {value}.",
        unknown=f"I don't know the {key}.",
    )


def _of_person(person: str, kind: str, key: str, value: str) -> Fact:
    return Fact(
        kind, f"{person} {key}", value,
        by_user=(f"{person}'s {key} is {value}.",),
        by_system=(f"{person}'s {key} is {value}.",),
        questions=(f"What is {person}'s {key}?", f"Tell me {person}'s {key}.", f"Do you remember {person}'s {key}?"),
        answer=f"{person}'s {key} is {value}.",
        unknown=f"I don't know {person}'s {key}.",
    )


def _user_name(value: str) -> Fact:
    return Fact(
        "name", "name", value,
        by_user=(f"My name is {value}.", f"My name is {value}.", f"I am {value}.", f"I'm {value}."),
        by_system=(f"The user's name is {value}.", f"The user is called {value}."),
        questions=(
            "What is my name?", "What is my name?", "Do you remember my name?", "Who am I?", "Tell me my name.",
            "What's my name?", "Can you tell me my name?",
        ),
        answer=f"Your name is {value}.",
        unknown="I don't know your name yet.",
    )


NUMBER_KEYS = (
    "lucky number", "room number", "locker code", "house number", "ticket number", "favourite number", "seat number",
    "order number", "phone code", "bus number", "favorite number", "card number",
)
COLOUR_KEYS = ("favourite colour", "favorite color")
RELATIONS = (
    "dog", "cat", "horse", "parrot", "rabbit", "sister", "brother", "friend", "teacher", "boss", "neighbour", "boat",
    "daughter", "son", "uncle", "aunt",
)
PEOPLE = ("sister", "brother", "friend", "teacher", "boss", "neighbour", "daughter", "son", "uncle", "aunt")
PLACE_KEYS = ("home town", "favourite city", "next stop", "favourite place")
VERBS = (
    ("live", "Where do I live?"), ("work", "Where do I work?"), ("was born", "Where was I born?"),
    ("study", "Where do I study?"),
)
PLAIN_NUMBERS = ("door code", "gate number", "room key", "answer", "train number", "magic number", "safe code")
PLAIN_WORDS = ("password", "secret word", "code word", "magic word")
WORD_KEYS = {
    "favourite food": words.FOODS, "favourite drink": words.DRINKS, "hobby": words.HOBBIES,
    "favourite season": words.SEASONS, "favourite animal": words.ANIMALS, "favourite day": words.DAYS,
}


def draw_fact(rng: random.Random, split: Split, kind: str | None = None) -> Fact:
    """One fact of the wanted kind (any kind when None), its value from the wanted side of the split."""
    kind = kind or rng.choices(("name", "number", "colour", "place", "word"), (26, 27, 18, 19, 10))[0]
    if kind == "name":
        value = words.name(rng, split)
        return _user_name(value) if rng.random() < 0.4 else _called(rng.choice(RELATIONS), value)
    if kind == "number":
        value = words.number(rng, split)
        roll = rng.random()
        if roll < 0.6:
            return _owned("number", rng.choice(NUMBER_KEYS), value)
        if roll < 0.85:
            return _plain("number", rng.choice(PLAIN_NUMBERS), value)
        return _of_person(words.name(rng, Split.TRAIN), "number", rng.choice(NUMBER_KEYS), value)
    if kind == "colour":
        value = words.colour(rng, split)
        roll = rng.random()
        if roll < 0.4:
            return _owned("colour", rng.choice(COLOUR_KEYS), value)
        if roll < 0.85:
            return _coloured(rng.choice(words.THINGS), value)
        return _of_person(words.name(rng, Split.TRAIN), "colour", rng.choice(COLOUR_KEYS), value)
    if kind == "place":
        value = words.place(rng, split)
        roll = rng.random()
        if roll < 0.4:
            return _located(*rng.choice(VERBS), value)
        if roll < 0.7:
            return _relative_lives(rng.choice(PEOPLE), value)
        return _owned("place", rng.choice(PLACE_KEYS), value)
    if rng.random() < 0.4:
        return _plain("word", rng.choice(PLAIN_WORDS), words.code_word(rng, split))
    key = rng.choice(tuple(WORD_KEYS))
    return _owned("word", key, rng.choice(WORD_KEYS[key]))


def draw_facts(rng: random.Random, split: Split, count: int) -> list[Fact]:
    """Facts with distinct topics and distinct values."""
    facts: list[Fact] = []
    topics: set[str] = set()
    values: set[str] = set()
    for _ in range(count * 3):
        if len(facts) == count:
            break
        fact = draw_fact(rng, split)
        topic = fact.topic.replace("favorite", "favourite").replace("color", "colour")
        if topic not in topics and fact.value not in values:
            facts.append(fact)
            topics.add(topic)
            values.add(fact.value)
    return facts
