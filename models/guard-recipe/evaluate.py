"""Measures the classifier on phrases that training has not seen: precision and recall, in all and by category.

    python evaluate.py --model ../baton-guard
"""

import argparse
import json
import pathlib
import random

import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

import prompt
from grammar import CATEGORIES, Writer
from model import Shape, forward, load


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", type=pathlib.Path, required=True)
    arguments.add_argument("--count", type=int, default=2000)
    arguments.add_argument("--seed", type=int, default=2024)
    args = arguments.parse_args()
    tokenizer, shape = Tokenizer.from_file(str(args.model / "tokenizer.json")), Shape()
    weights = load(args.model)
    writer = Writer(random.Random(args.seed), test=True, pool=4000)
    one, ids_of = tokenizer.token_to_id, lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    safe, unsafe = ids_of("safe")[0], ids_of("unsafe")[0]
    texts = [writer.write() for _ in range(args.count)]
    counts = {"flagged right": 0, "flagged wrong": 0, "missed": 0, "passed": 0}
    found = {category: [0, 0] for category in CATEGORIES}
    wrong = []
    rows = []
    for role, text, categories in texts:
        rows.append(prompt.prompt_ids(role, text, one, ids_of))
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for begin in range(0, len(order), 32):
        some = order[begin:begin + 32]
        length = (max(len(rows[i]) for i in some) + 31) // 32 * 32
        ids = np.zeros((len(some), length), np.int32)
        for k, i in enumerate(some):
            ids[k, :len(rows[i])] = rows[i]
        last = np.array([len(rows[i]) - 1 for i in some])
        hidden = forward(shape, weights, jnp.asarray(ids))[np.arange(len(some)), last]
        logits = np.asarray(hidden @ weights["model.embed_tokens.weight"].T)
        for k, i in enumerate(some):
            flagged, categories = logits[k, unsafe] > logits[k, safe], texts[i][2]
            counts[("flagged right" if categories else "flagged wrong") if flagged else ("missed" if categories else "passed")] += 1
            for category in categories:
                found[category][0] += int(flagged)
                found[category][1] += 1
            if flagged != bool(categories):
                wrong.append(texts[i][1])
    right = counts["flagged right"]
    print(json.dumps(counts))
    print(f"precision {right / max(1, right + counts['flagged wrong']):.3f}, recall {right / max(1, right + counts['missed']):.3f}")
    for category, (hits, all_of) in found.items():
        print(f"  {category}: {hits} of {all_of} flagged")
    for text in wrong[:5]:
        print("wrong:", text[:200].replace("\n", " / "))


if __name__ == "__main__":
    main()
