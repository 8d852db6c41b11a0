"""Writes the recall test: 200 conversations that end in a question about a fact stated long before.

    python write_recall.py --model ../baton-tiny

Every value is held out from training. The fact is stated by the user or in the system prompt, beside other facts; stories,
sums and small talk follow, until it lies about 50, 400, 1,000 or 1,500 tokens back.
"""

import argparse
import json
import pathlib
import random

from transformers import AutoTokenizer

from corpus import stories, sums, talk
from corpus.facts import Fact, draw_fact, draw_facts
from corpus.words import Split

DISTANCES = {50: 20, 400: 40, 1000: 60, 1500: 60}  # tokens back, and how far off it may be
KINDS = ("name", "number", "colour", "place")
PER_DISTANCE = 50


def filler(rng: random.Random, missing: int) -> tuple[str, str]:
    """One exchange that states no fact, of no more than about `missing` tokens."""
    roll = rng.random()
    if missing > 260 and roll < 0.7:
        animal = rng.choice(("fox", "bear", "rabbit", "mouse", "duck", "frog"))
        story = stories.tell(rng, Split.HELD_OUT, animal=animal, walks=rng.randint(0, 8))
        if roll < 0.35:
            return f"Tell me a story about a {animal}.", story.text
        return f"{rng.choice(talk.READ_REQUESTS)} {story.text}", talk.READ[0]
    if roll < 0.85:
        a, b = sums.draw(rng)
        return sums.question(rng, a, b), sums.answer(a, b)
    return talk.exchange(rng)


def conversation(rng: random.Random, fact: Fact, others: list[Fact], in_system: bool) -> list[dict]:
    """The conversation up to where the fact is known; the filler comes after."""
    stated = others[:2] + [fact]
    rng.shuffle(stated)
    if in_system:
        lines = [rng.choice(talk.PERSONAS)] + [rng.choice(f.by_system) for f in stated]
        return [{"role": "system", "content": " ".join(lines)}]
    text = " ".join(rng.choice(f.by_user) for f in stated)
    return [
        {"role": "system", "content": rng.choice(talk.PERSONAS)},
        {"role": "user", "content": text}, {"role": "assistant", "content": talk.ACKNOWLEDGEMENTS[0]},
    ]


def distance(tokenizer, messages: list[dict], value: str) -> int:
    """Tokens from the end of the value, where it is stated first, to the end of the prompt."""
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    after = text[text.index(f" {value}") + len(value) + 1 :]
    return len(tokenizer(after, add_special_tokens=False).input_ids)


def prompt(rng: random.Random, tokenizer, kind: str, back: int, in_system: bool) -> dict:
    slack = DISTANCES[back]
    while True:
        fact = draw_fact(rng, Split.HELD_OUT, kind)
        others = [f for f in draw_facts(rng, Split.HELD_OUT, 4) if f.topic != fact.topic and f.value != fact.value]
        messages = conversation(rng, fact, others, in_system)
        question = {"role": "user", "content": rng.choice(fact.questions)}
        while (now := distance(tokenizer, messages + [question], fact.value)) < back - slack:
            user, assistant = filler(rng, back - now)
            messages += [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
        said = " ".join(m["content"] for m in messages)
        if now <= back + slack and said.count(fact.value) == 1:
            return {"messages": messages + [question], "expected": fact.value, "kind": kind,
                    "where": "system" if in_system else "user", "distance_tokens": now, "distance": back}


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", type=pathlib.Path, required=True)
    arguments.add_argument("--seed", type=int, default=2024)
    args = arguments.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    rng = random.Random(args.seed)
    path = args.model / "eval" / "recall.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        for back in DISTANCES:
            for i in range(PER_DISTANCE):
                made = prompt(rng, tokenizer, KINDS[i % 4], back, in_system=i % 8 >= 4)
                file.write(json.dumps({"id": f"recall-{back}-{i:02}", **made}, ensure_ascii=False) + "\n")
    print(path)


if __name__ == "__main__":
    main()
