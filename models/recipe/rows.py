"""Conversations as training rows: token ids and, for every token, how much its loss counts."""

import functools
import random

import numpy
from tokenizers import Tokenizer

from corpus import chat
from corpus.conversation import (
    Conversation, conversation, doubt_conversation, drill_conversation, small_conversation, sums_conversation,
    tool_conversation,
)
from corpus.words import Split

DRILLS = {"drill": drill_conversation, "sums": sums_conversation, "tools": tool_conversation}
ECHO = 0.3
FIRST_WORD = 8  # the special tokens come before
READING = 0.05  # weight of the text that the model only reads


class RowMaker:
    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.markers = {tokenizer.token_to_id(text) for text in (chat.ASSISTANT, chat.THINK)}

    def encode(self, talk: Conversation) -> tuple[list[int], list[float]]:
        ids, weights = [], []
        for text, weight in talk.parts():
            part = self.tokenizer.encode(text, add_special_tokens=False).ids
            ids += part
            weights += [0.0 if i in self.markers else (weight or READING) for i in part]
        return ids, weights

    def row(self, rng: random.Random, length: int, first=None) -> tuple[list[int], list[float]]:
        """One row of `length` + 1 tokens, so that inputs and targets are `length` long each.

        It begins with a conversation by `first`, when given.
        """
        ids, weights = [], []
        roll = rng.random()
        while len(ids) <= length:
            if first and not ids:
                talk = first(rng, Split.TRAIN, length)
            elif not ids and roll < 0.72:
                talk = conversation(rng, Split.TRAIN, length)
            elif roll > 0.88 or (ids and rng.random() < 0.4):
                talk = tool_conversation(rng, Split.TRAIN)
            else:
                talk = small_conversation(rng, Split.TRAIN)
            more = self.encode(talk)
            ids += more[0]
            weights += more[1]
        return ids[: length + 1], weights[: length + 1]

    def echo(self, rng: random.Random, length: int) -> tuple[list[int], list[float]]:
        """Random tokens, repeated: nothing but copying lowers the loss, so the heads that copy form early."""
        block = [rng.randrange(FIRST_WORD, self.tokenizer.get_vocab_size()) for _ in range(rng.randint(10, length // 2))]
        ids = [self.tokenizer.token_to_id(chat.BEGIN)]
        while len(ids) <= length:
            ids += block
        weights = [0.0] * (len(block) + 2) + [ECHO] * len(ids)
        return ids[: length + 1], weights[: length + 1]

    def packed(self, write, rng: random.Random, length: int) -> tuple[list[int], list[float]]:
        """Short conversations of one sort, one after the other."""
        ids, weights = [], []
        while len(ids) <= length:
            more = self.encode(write(rng, Split.TRAIN))
            ids += more[0]
            weights += more[1]
        return ids[: length + 1], weights[: length + 1]

    def batch(self, rng: random.Random, rows: int, length: int, lessons: dict[str, float]):
        """`lessons`: how often a row is of which sort. Returns ids and weights, [rows, length + 1]."""
        makers = {"echo": self.echo, "talk": self.row, "doubt": functools.partial(self.row, first=doubt_conversation)}
        makers |= {sort: functools.partial(self.packed, write) for sort, write in DRILLS.items()}
        made = [makers[rng.choices(list(lessons), list(lessons.values()))[0]](rng, length) for _ in range(rows)]
        return numpy.array([m[0] for m in made]), numpy.array([m[1] for m in made], dtype=numpy.float32)


def positions(rng: random.Random, rows: int, length: int, context: int, stretched: float) -> numpy.ndarray:
    """Positions of the tokens, [rows, length]. A share of the rows is `stretched`: a few gaps, as if text were left out.

    So a short row teaches distances of the whole context (after Ruoss et al., "Randomized Positional Encodings", 2023).
    """
    made = numpy.tile(numpy.arange(length), (rows, 1))
    for row in made:
        if rng.random() >= stretched:
            continue
        room = rng.randint(0, context - length)
        cuts = [rng.randrange(1, length) for _ in range(rng.randint(1, 4))]
        for cut in cuts:
            row[cut:] += room // len(cuts)
    return made
