"""Trains the classifier; writes its folder as it goes, so that it may be stopped at any time. Minutes are of CPU time.

    python train.py --out ../baton-guard --minutes 10
"""

import argparse
import pathlib
import random
import time

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

import prompt
from grammar import Writer
from model import Shape, forward, save, start

BUCKETS = ((64, 48), (128, 24), (256, 10), (384, 4))  # a row's length, rows of a step
READ_WEIGHT = 0.05  # of the loss of the text itself, which teaches words


class Rows:
    """Rows of like length: ids, and how much the loss of each position's next token counts."""

    def __init__(self, tokenizer: Tokenizer, seed: int):
        self.tokenizer, self.writer = tokenizer, Writer(random.Random(seed))
        self.waiting = {length: [] for length, _ in BUCKETS}

    def ids(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def next(self) -> tuple[np.ndarray, np.ndarray]:
        one = self.tokenizer.token_to_id
        while True:
            role, text, categories = self.writer.write()
            head = prompt.prompt_ids(role, text, one, self.ids)
            verdict = self.ids(prompt.verdict_text(categories)) + [one(prompt.END)]
            row, weight = head + verdict, [READ_WEIGHT / len(head)] * (len(head) - 1) + [1.0] + [0.3] * (len(verdict) - 1)
            for length, rows in BUCKETS:
                if len(row) <= length:
                    self.waiting[length].append((row, weight))
                    if len(self.waiting[length]) == rows:
                        taken, self.waiting[length] = self.waiting[length], []
                        ids, weights = np.zeros((rows, length), np.int32), np.zeros((rows, length), np.float32)
                        for i, (r, w) in enumerate(taken):
                            ids[i, :len(r)], weights[i, :len(w)] = r, w
                        return ids, weights
                    break


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--seed", type=int, default=7)
    args = arguments.parse_args()
    tokenizer, shape = Tokenizer.from_file(str(args.out / "tokenizer.json")), Shape()
    weights = start(shape, args.seed)
    print(sum(w.size for w in weights.values()), "weights", flush=True)

    def loss(weights, ids, counts):
        embedding = weights["model.embed_tokens.weight"]
        logits = forward(shape, weights, ids)[:, :-1] @ embedding.T
        losses = -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), ids[:, 1:, None], -1)[..., 0]
        return (losses * counts[:, :-1]).sum() / ids.shape[0]

    @jax.jit
    def step(weights, first, second, count, rate, ids, counts):
        value, slopes = jax.value_and_grad(loss)(weights, ids, counts)
        size = jnp.sqrt(sum((s * s).sum() for s in slopes.values()))
        slopes = {n: s * jnp.minimum(1.0, 1.0 / size) for n, s in slopes.items()}
        first = {n: 0.9 * first[n] + 0.1 * s for n, s in slopes.items()}
        second = {n: 0.98 * second[n] + 0.02 * s * s for n, s in slopes.items()}
        weights = {n: w * (1 - rate * 0.02) - rate * (first[n] / (1 - 0.9**count)) / (jnp.sqrt(second[n] / (1 - 0.98**count)) + 1e-8) for n, w in weights.items()}
        return weights, first, second, value

    rows = Rows(tokenizer, args.seed)
    first = {n: jnp.zeros_like(w) for n, w in weights.items()}
    second = {n: jnp.zeros_like(w) for n, w in weights.items()}
    began, count, mean, saved = time.process_time(), 0, None, 0.0
    while (passed := (time.process_time() - began) / (60 * args.minutes)) < 1:
        count += 1
        rate = 2e-3 * min(1.0, count / 100) * max(0.02, 1 - max(0.0, passed - 0.4) / 0.6)
        weights, first, second, value = step(weights, first, second, float(count), rate, *rows.next())
        mean = float(value) if mean is None else 0.98 * mean + 0.02 * float(value)
        if count % 100 == 0:
            print(f"step {count} at {passed:.2f}: loss {mean:.4f}", flush=True)
        if passed - saved > 0.1:
            saved = passed
            save(shape, weights, tokenizer, args.out)
    save(shape, weights, tokenizer, args.out)
    print(f"step {count}: loss {mean:.4f}")


if __name__ == "__main__":
    main()
