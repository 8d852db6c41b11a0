"""Writes the documents test: 120 conversations that hand over eight documents and ask about a fact in one of them.

    python write_documents.py --model ../baton-tiny

Each document is a message of its own, marked as reusable: a fact, and a story that states none. `baton eval chunk-reuse` asks each
question twice, with and without the marks. All values are held out from training.
"""

import argparse
import json
import pathlib
import random

from corpus import stories, talk
from corpus.facts import draw_facts
from corpus.words import Split

QUESTIONS = 120
DOCUMENTS = 8
KINDS = ("name", "number", "colour", "place")
CHARACTERS = 780  # of a document, about 220 tokens: eight of them fill most of the model's context


def document(rng: random.Random, statement: str) -> str:
    while True:
        animal = rng.choice(("fox", "bear", "rabbit", "mouse", "duck", "frog"))
        story = stories.tell(rng, Split.HELD_OUT, animal=animal, walks=rng.randint(0, 8)).text
        text = f"{statement} {rng.choice(talk.READ_REQUESTS)} {story}"
        if abs(len(text) - CHARACTERS) < 80:
            return text


def question(rng: random.Random, kind: str, place: int) -> dict:
    while True:
        facts = draw_facts(rng, Split.HELD_OUT, DOCUMENTS)
        if len(facts) < DOCUMENTS or facts[place].kind != kind:
            continue
        messages = [{"role": "system", "content": rng.choice(talk.PERSONAS)}]
        for fact in facts:
            messages.append({"role": "user", "parts": [{"text": document(rng, rng.choice(fact.by_user)), "reusable": True}]})
            messages.append({"role": "assistant", "content": talk.READ[0]})
        asked = facts[place]
        said = " ".join(m["parts"][0]["text"] for m in messages if "parts" in m)
        if said.count(asked.value) == 1:
            messages.append({"role": "user", "content": rng.choice(asked.questions)})
            return {"messages": messages, "expected": asked.value, "kind": kind, "document": place}


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", type=pathlib.Path, required=True)
    arguments.add_argument("--seed", type=int, default=2025)
    args = arguments.parse_args()
    rng = random.Random(args.seed)
    path = args.model / "eval" / "documents.jsonl"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as file:
        for i in range(QUESTIONS):
            made = question(rng, KINDS[i % len(KINDS)], i % DOCUMENTS)
            file.write(json.dumps({"id": f"documents-{i:03}", **made}, ensure_ascii=False) + "\n")
    print(path)


if __name__ == "__main__":
    main()
