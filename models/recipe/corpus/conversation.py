"""A conversation of about a wanted length: facts first or spread out, filler between, many questions.

Most of what the model must learn is to find a fact again, so a conversation asks for each of its facts, most of them only
once and far from where they were stated.
"""

import dataclasses
import random

from . import chat, stories, sums, talk, tools
from . import words
from .facts import Fact, draw_fact, draw_facts
from .words import Split

RECALL, ROUTINE, STORY = 1.0, 0.4, 0.15  # how much the loss of an answer counts
SELDOM = 0.1  # of the chances to ask for what nobody told; more, and the model doubts what it was told
CHARACTERS_PER_TOKEN = 3.6  # of this text under its tokenizer; only used to aim at a length


@dataclasses.dataclass
class Conversation:
    system: str = ""
    tools: list[dict] = dataclasses.field(default_factory=list)
    messages: list[dict] = dataclasses.field(default_factory=list)
    weights: list[float] = dataclasses.field(default_factory=list)  # one per message
    characters: int = 0

    def add(self, message: dict, weight: float) -> None:
        self.messages.append(message)
        self.weights.append(weight)
        self.characters += len(message.get("content") or "") + 8

    def turn(self, user: str, answer: str, weight: float, reasoning: str = "") -> None:
        self.add({"role": "user", "content": user}, 0.0)
        message = {"role": "assistant", "content": answer}
        if reasoning:
            message["reasoning_content"] = reasoning
        self.add(message, weight)

    def parts(self) -> list[tuple[str, float]]:
        """(text, weight of its loss) per message, in order; the text is what the chat template renders."""
        parts = [(chat.BEGIN, 0.0)]
        if self.system or self.tools:
            parts.append((chat.system_text(self.system, self.tools), 0.0))
        parts += [(chat.message_text(m), w) for m, w in zip(self.messages, self.weights)]
        return parts


class Writer:
    """Writes one conversation; holds which facts are known and which were not asked for yet."""

    def __init__(self, rng: random.Random, split: Split, tokens: int):
        self.rng, self.split = rng, split
        self.budget = int(tokens * CHARACTERS_PER_TOKEN)
        self.talk = Conversation()
        self.told: list[Fact] = []
        self.fresh: list[Fact] = []  # told, not asked for

    def write(self) -> Conversation:
        rng = self.rng
        per_fact = rng.choice((100, 140, 200, 300))
        facts = draw_facts(rng, self.split, max(1, min(24, int(self.budget / per_fact))))
        in_system = rng.choice((0, 0, 1, 2, 3, len(facts))) if len(facts) > 1 else rng.randint(0, 1)
        self._open(facts[:in_system])
        later = facts[in_system:]
        shape = rng.random()
        if shape < 0.5:
            self._facts_first(later)
        else:
            self._spread(later)
        while self.talk.characters < self.budget:
            self._question()
        return self.talk

    def _open(self, facts: list[Fact]) -> None:
        rng, lines = self.rng, []
        if rng.random() < 0.75 or facts:
            lines.append(rng.choice(talk.PERSONAS))
        lines += [rng.choice(f.by_system) for f in facts]
        if rng.random() < 0.1 and len(lines) > 1:
            rng.shuffle(lines)
        if lines and rng.random() < 0.07:
            lines.append(stories.tell(rng, self.split, walks=rng.randint(0, 4)).text)
        self.talk.system = " ".join(lines)
        self.talk.characters += len(self.talk.system)
        self._know(facts)
        if rng.random() < 0.25:
            self.talk.turn(*talk.greeting(rng), ROUTINE)

    def _know(self, facts: list[Fact]) -> None:
        self.told += facts
        self.fresh += facts

    def _facts_first(self, facts: list[Fact]) -> None:
        """All facts, then filler, then questions until the end."""
        rng = self.rng
        while facts:
            take = rng.choice((1, 1, 2, 2, 3, 5))
            self._state(facts[:take])
            facts = facts[take:]
        questions = len(self.told) * rng.uniform(1.0, 1.6) * 70
        while self.talk.characters < self.budget - questions:
            self._filler()

    def _spread(self, facts: list[Fact]) -> None:
        rng = self.rng
        while self.talk.characters < self.budget and facts:
            roll = rng.random()
            if roll < 0.35:
                self._state([facts.pop()])
            elif roll < 0.65:
                self._question()
            else:
                self._filler()

    def _state(self, facts: list[Fact]) -> None:
        rng = self.rng
        text = " ".join(rng.choice(f.by_user) for f in facts)
        name = next((f.value for f in facts if f.topic == "name"), None)
        if name and rng.random() < 0.8:
            answer = talk.greeting_by_name(name) if rng.random() < 0.7 else f"Nice to meet you, {name}!"
            text = f"{rng.choice(talk.HELLOS[:2])} {text}" if rng.random() < 0.5 else text
        else:
            answer = talk.ACKNOWLEDGEMENTS[len(text) % len(talk.ACKNOWLEDGEMENTS)]
            text = f"{rng.choice(talk.HELLOS[:2])} {text}" if rng.random() < 0.1 else text
        roll = rng.random()
        if roll < 0.08:
            text += " " + stories.tell(rng, self.split, walks=rng.randint(0, 5)).text
        elif roll < 0.16:
            text = stories.tell(rng, self.split, walks=rng.randint(0, 5)).text + " " + text
        self._know(facts)
        if roll > 0.85 and len(facts) > 1:
            self._ask(rng.choice(facts), before=text + " ")
        else:
            self.talk.turn(text, answer, ROUTINE)

    def _filler(self) -> None:
        rng = self.rng
        roll = rng.random()
        if roll < 0.35:
            story = stories.tell(rng, self.split, walks=rng.randint(0, 8))
            request = rng.choice(talk.READ_REQUESTS)
            self.talk.turn(f"{request} {story.text}", talk.READ[len(request) % 2], ROUTINE)
            for _ in range(rng.choice((0, 0, 1, 2))):
                self.talk.turn(*rng.choice(story.questions()), RECALL)
        elif roll < 0.55:
            self._story()
        elif roll < 0.75:
            self._sum()
        elif roll < 0.90:
            self.talk.turn(*talk.exchange(rng), ROUTINE)
        elif roll < 0.95:
            self.talk.turn(*talk.greeting(rng), ROUTINE)
        elif rng.random() < SELDOM:
            self._unknown()

    def _story(self) -> None:
        rng = self.rng
        animal = rng.choice(words.ANIMALS)
        article = "an" if animal[0] in "aeiou" else "a"
        hero = words.name(rng, self.split) if rng.random() < 0.4 else None
        request = rng.choice(("Tell me a story about {0} {1}", "Tell me a short story about {0} {1}",
                              "Please tell a story about {0} {1}")).format(article, animal)
        request += f" named {hero}." if hero else "."
        if not hero and rng.random() < 0.3:
            request = rng.choice(("Tell me a story.", "Tell me a short story.", "Can you tell me a story?"))
        story = stories.tell(rng, self.split, animal=animal, hero=hero, walks=rng.randint(0, 2))
        self.talk.turn(request, story.text, STORY)
        if rng.random() < 0.4:
            self.talk.turn(*rng.choice(story.questions()), RECALL)

    def _sum(self) -> None:
        a, b = sums.draw(self.rng)
        thought = sums.reasoning(a, b) if self.rng.random() < 0.35 else ""
        self.talk.turn(sums.question(self.rng, a, b), sums.answer(a, b), 0.7, thought)

    def _unknown(self) -> None:
        fact = draw_fact(self.rng, self.split)
        known = {f.topic.replace("favorite", "favourite").replace("color", "colour") for f in self.told}
        if fact.topic.replace("favorite", "favourite").replace("color", "colour") not in known:
            self.talk.turn(self.rng.choice(fact.questions), fact.unknown, ROUTINE)

    def _question(self) -> None:
        rng = self.rng
        if not self.told or rng.random() < 0.08:
            self._filler() if not self.told else self._sum()
            return
        if not self.fresh:
            if rng.random() < 0.4:
                fresh = draw_facts(rng, self.split, 1)
                known = {f.topic for f in self.told}
                if fresh[0].topic not in known:
                    self._state(fresh)
            self._ask(rng.choice(self.told))
            return
        fact = self.fresh.pop(rng.randrange(len(self.fresh)))
        if self.fresh and rng.random() < 0.08:
            other = self.fresh.pop(rng.randrange(len(self.fresh)))
            self.talk.turn(f"{rng.choice(fact.questions)} {rng.choice(other.questions)}",
                           f"{fact.answer} {other.answer}", RECALL)
            return
        self._ask(fact)

    def _ask(self, fact: Fact, before: str = "") -> None:
        rng = self.rng
        if fact in self.fresh:
            self.fresh.remove(fact)
        thought = f"I look for it in the conversation. {fact.answer}" if rng.random() < 0.1 else ""
        self.talk.turn(before + rng.choice(fact.questions), fact.answer, RECALL, thought)


def drill_conversation(rng: random.Random, split: Split) -> Conversation:
    """A few facts, then one question about each in another order."""
    writer = Writer(rng, split, 100)
    facts = draw_facts(rng, split, rng.randint(1, 5))
    in_system = rng.choice((0, len(facts), rng.randint(0, len(facts))))
    if in_system:
        writer._open(facts[:in_system])
    if facts[in_system:]:
        writer._state(facts[in_system:])
    while writer.fresh:
        writer._ask(rng.choice(writer.fresh))
    return writer.talk


def doubt_conversation(rng: random.Random, split: Split, tokens: int) -> Conversation:
    """A few facts, and questions about them as well as about things that nobody told."""
    writer = Writer(rng, split, tokens)
    writer._open(draw_facts(rng, split, rng.randint(0, 3)))
    while writer.talk.characters < writer.budget:
        roll = rng.random()
        if roll < 0.5:
            writer._unknown()
        elif roll < 0.75 and writer.fresh:
            writer._ask(rng.choice(writer.fresh))
        elif roll < 0.85:
            writer._filler()
        else:
            topics = {f.topic for f in writer.told}
            writer._state([f for f in draw_facts(rng, split, 2) if f.topic not in topics] or draw_facts(rng, split, 1))
    return writer.talk


def sums_conversation(rng: random.Random, split: Split) -> Conversation:
    writer = Writer(rng, split, 100)
    for _ in range(rng.randint(1, 8)):
        writer._sum()
    return writer.talk


def tool_conversation(rng: random.Random, split: Split) -> Conversation:
    """Tools on offer; some questions call for one of them, others do not."""
    talk_ = Conversation()
    offer = tools.draw_offer(rng, split, rng.randint(1, 3))
    talk_.tools = [tools.shuffled_keys(rng, use.tool) for use in offer]
    fact = draw_fact(rng, split)
    talk_.system = rng.choice(("", rng.choice(talk.PERSONAS), f"{talk.PERSONAS[0]} {rng.choice(fact.by_system)}"))
    uses = [tools.draw_use(rng, split) for _ in range(4)]
    names = {use.tool["function"]["name"] for use in offer}
    for use in [rng.choice(offer)] + [u for u in uses if u.tool["function"]["name"] in names] + offer[:1]:
        if rng.random() < 0.2:
            talk_.turn(*talk.exchange(rng), ROUTINE)
        if rng.random() < 0.15 and fact.value in talk_.system:
            talk_.turn(rng.choice(fact.questions), fact.answer, RECALL)
        talk_.add({"role": "user", "content": use.request}, 0.0)
        thought = f"I need the tool {use.tool['function']['name']}." if rng.random() < 0.15 else ""
        talk_.add({"role": "assistant", "content": "", "reasoning_content": thought, "tool_calls": [use.call()]}, RECALL)
        talk_.add({"role": "tool", "content": use.result}, 0.0)
        talk_.add({"role": "assistant", "content": use.answer}, RECALL)
    return talk_


def small_conversation(rng: random.Random, split: Split) -> Conversation:
    """How most people start: a greeting, some small talk, a sum, a story."""
    writer = Writer(rng, split, 100)
    if rng.random() < 0.4:
        writer.talk.system = rng.choice(talk.PERSONAS)
    for _ in range(rng.randint(1, 5)):
        roll = rng.random()
        if roll < 0.25:
            writer.talk.turn(*talk.greeting(rng), ROUTINE)
        elif roll < 0.5:
            writer.talk.turn(*talk.exchange(rng), ROUTINE)
        elif roll < 0.65:
            writer._sum()
        elif roll < 0.8:
            writer._story()
        elif roll < 0.9:
            if rng.random() < SELDOM:
                writer._unknown()
        else:
            writer._state(draw_facts(rng, split, rng.randint(1, 3)))
    while writer.fresh:
        writer._question()
    return writer.talk


def conversation(rng: random.Random, split: Split, tokens: int) -> Conversation:
    return Writer(rng, split, tokens).write()
