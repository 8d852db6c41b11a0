#!/usr/bin/env python3
"""Draws a trace in Mooncake's JSONL for `baton simulate`: python3 make_trace.py SHAPE SEED REQUESTS > trace.jsonl

chat       conversations under one system prompt of 4 blocks: some turns, lognormal lengths, pauses of a minute
agents     ten tools' prompts of 20 blocks: tasks of many quick turns that grow by what the tools answered
documents  a Zipf-popular library of 3,000 long documents, one question each time; nothing else repeats
reports    short questions, and among them one in fifteen with 20,000 to 50,000 tokens that no cache has
"""
import json
import random
import sys

BLOCK = 512


class Trace:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.next_id = 0
        self.entries = []

    def blocks(self, count):
        self.next_id += count
        return list(range(self.next_id - count, self.next_id))

    def tokens(self, median, sigma, least=16, most=60_000):
        return int(min(most, max(least, median * self.rng.lognormvariate(0, sigma))))

    def add(self, at, chain, tail, output):
        # The last, partial block has an id of its own.
        ids = chain + (self.blocks(1) if tail else [])
        self.entries.append((at, len(chain) * BLOCK + tail, output, ids))

    def session(self, start, chain, first, turns, more, output, pause):
        """Turns that each add what was asked and answered to what was there."""
        at, chain = start, list(chain)
        chain += self.blocks(self.tokens(*first) // BLOCK)
        for _ in range(turns):
            answer = self.tokens(*output, most=4_000)
            self.add(at, chain, self.rng.randrange(1, BLOCK), answer)
            chain = chain + self.blocks((answer + self.tokens(*more)) // BLOCK + 1)
            if len(chain) * BLOCK > 120_000:
                break
            at += self.rng.expovariate(1 / pause) + answer * 0.02


def draw(shape, seed, requests):
    trace = Trace(seed)
    rng = trace.rng
    at = 0.0
    if shape == "chat":
        system = trace.blocks(4)
        while len(trace.entries) < requests:
            at += rng.expovariate(1.0)
            turns = 1 + int(rng.expovariate(1 / 3))
            trace.session(at, system, (4_000, 1.4), turns, (600, 1.2), (250, 0.8), 60)
    elif shape == "agents":
        tools = [trace.blocks(20) for _ in range(10)]
        while len(trace.entries) < requests:
            at += rng.expovariate(0.4)
            turns = 2 + int(rng.expovariate(1 / 8))
            trace.session(at, rng.choice(tools), (2_000, 1.0), turns, (2_500, 1.2), (120, 0.7), 8)
    elif shape == "documents":
        library = [trace.blocks(trace.tokens(14_000, 0.9) // BLOCK + 1) for _ in range(3_000)]
        weights = [1 / (rank + 1) ** 0.9 for rank in range(len(library))]
        while len(trace.entries) < requests:
            at += rng.expovariate(3.0)
            trace.add(at, rng.choices(library, weights)[0], trace.tokens(150, 0.7, most=BLOCK - 1), trace.tokens(200, 0.7))
    elif shape == "reports":
        system = trace.blocks(1)
        while len(trace.entries) < requests:
            at += rng.expovariate(10.0)
            size = rng.uniform(20_000, 50_000) if rng.random() < 1 / 15 else trace.tokens(900, 0.9, most=8_000)
            trace.add(at, system + trace.blocks(int(size) // BLOCK), rng.randrange(1, BLOCK), trace.tokens(200, 0.7))
    else:
        sys.exit(__doc__)
    trace.entries.sort()
    return trace.entries[:requests]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    for at, prompt, output, ids in draw(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])):
        print(json.dumps({"timestamp": int(at * 1000), "input_length": prompt, "output_length": output, "hash_ids": ids}))


if __name__ == "__main__":
    main()
