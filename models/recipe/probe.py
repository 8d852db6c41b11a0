"""A quick look at recall while training: held-out conversations, and is every token of an answer the likeliest one?

Then greedy decoding gives that answer, so no decoding is needed. Answers are grouped by how far back the fact was stated.
"""

import random

import torch

from corpus import chat
from corpus.conversation import RECALL, conversation
from corpus.words import Split

EDGES = (0, 100, 300, 700, 1200, 2400)


@torch.no_grad()
def recall(model, maker, length: int, rows: int = 6) -> str:
    rng = random.Random(99)
    end = maker.tokenizer.token_to_id(chat.END)
    right, asked = [0] * len(EDGES), [0] * len(EDGES)
    for _ in range(max(rows, 4096 // length)):
        talk = conversation(rng, Split.HELD_OUT, length)
        ids, spans = [], []
        for text, weight in talk.parts():
            part = maker.tokenizer.encode(text, add_special_tokens=False).ids
            if weight == RECALL:
                spans.append((len(ids), len(ids) + len(part)))
            ids += part
        ids = ids[:length]
        with torch.autocast("cpu", torch.bfloat16), torch.compiler.set_stance("force_eager"):
            best = model.logits(model(torch.tensor([ids])))[0].argmax(-1).tolist()
        for start, stop in spans:
            if stop > len(ids):
                continue
            answer = ids[start + 1 : stop]
            if answer[-1] != end:
                continue
            # The value is the end of the answer; where else was its last piece before that?
            tail = answer[-4:-2]
            back = next((start - i for i in range(start - 2, 0, -1) if ids[i : i + 2] == tail), 0)
            bucket = max(i for i, edge in enumerate(EDGES) if back >= edge)
            asked[bucket] += 1
            right[bucket] += best[start + 1 : stop - 1] == answer[1:]
    cells = [f">={e}: {r}/{a}" for e, r, a in zip(EDGES, right, asked) if a]
    return f"{sum(right) / max(1, sum(asked)):.3f} of {sum(asked)} (" + ", ".join(cells) + ")"
