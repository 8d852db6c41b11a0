"""Conversations as training rows: token ids and, for every token, how much its loss counts."""

import random

import numpy
from tokenizers import Tokenizer

from corpus import chat
from corpus.conversation import Conversation, conversation, small_conversation, tool_conversation
from corpus.words import Split

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

    def row(self, rng: random.Random, length: int) -> tuple[list[int], list[float]]:
        """One row of `length` + 1 tokens, so that inputs and targets are `length` long each."""
        ids, weights = [], []
        roll = rng.random()
        while len(ids) <= length:
            if not ids and roll < 0.72:
                talk = conversation(rng, Split.TRAIN, length)
            elif roll > 0.88 or (ids and rng.random() < 0.4):
                talk = tool_conversation(rng, Split.TRAIN)
            else:
                talk = small_conversation(rng, Split.TRAIN)
            more = self.encode(talk)
            ids += more[0]
            weights += more[1]
        return ids[: length + 1], weights[: length + 1]

    def batch(self, rng: random.Random, rows: int, length: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        made = [self.row(rng, length) for _ in range(rows)]
        return numpy.array([m[0] for m in made]), numpy.array([m[1] for m in made], dtype=numpy.float32)
