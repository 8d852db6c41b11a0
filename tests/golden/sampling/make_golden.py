"""Writes golden.json: what transformers' logits processors keep, and with which probabilities.

    pip install torch transformers numpy   (golden.json came from torch 2.15.0, transformers 5.23.0)
    python tests/golden/sampling/make_golden.py

The processors run in float64 on logits and parameters that are exact in float32, in the order in which generate() runs
them: repetition penalty, temperature, top-k, top-p, min-p.
"""

import json
import pathlib

import numpy as np
import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

VOCABULARY = 48
PARAMETERS = [
    {},
    {"temperature": 0.25},
    {"temperature": 3.0},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 48},
    {"top_p": 0.1},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"min_p": 0.05},
    {"min_p": 0.5},
    {"min_p": 1.0},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.7},
    {"temperature": 0.7, "top_k": 20, "top_p": 0.8},
    {"temperature": 1.5, "top_k": 20, "min_p": 0.1},
    {"temperature": 1.2, "top_p": 0.95, "min_p": 0.02},
    {"temperature": 0.6, "top_k": 10, "top_p": 0.95, "min_p": 0.01, "repetition_penalty": 1.1},
]
NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


def float32(value):
    return value if isinstance(value, int) else float(np.float32(value))


def processors(p):
    if p["repetition_penalty"] != 1:
        yield RepetitionPenaltyLogitsProcessor(p["repetition_penalty"])
    yield TemperatureLogitsWarper(p["temperature"])
    if p["top_k"] > 0:
        yield TopKLogitsWarper(p["top_k"])
    if p["top_p"] < 1:
        yield TopPLogitsWarper(p["top_p"])
    if p["min_p"] > 0:
        yield MinPLogitsWarper(p["min_p"])


def main():
    random = np.random.default_rng(20)
    groups, count = [], 0
    for scale in (0.5, 2.0, 6.0):
        logits = (random.standard_normal(VOCABULARY) * scale).astype(np.float32)
        history = [int(token) for token in random.integers(0, VOCABULARY, 12)]
        cases = []
        for given in PARAMETERS:
            parameters = {name: float32(value) for name, value in {**NEUTRAL, **given}.items()}
            scores = torch.tensor(logits.astype(np.float64))[None]
            for processor in processors(parameters):
                scores = processor(torch.tensor([history]), scores)
            probabilities = torch.softmax(scores, dim=-1)[0]
            kept = [token for token in range(VOCABULARY) if torch.isfinite(scores[0, token])]
            cases.append({
                "parameters": parameters,
                "kept": {str(token): float(f"{probabilities[token]:.9g}") for token in kept},
            })
        count += len(cases)
        groups.append({"logits": [float(logit) for logit in logits], "history": history, "cases": cases})
    path = pathlib.Path(__file__).with_name("golden.json")
    path.write_text(json.dumps(groups, separators=(",", ":")).replace('{"parameters"', '\n{"parameters"') + "\n")
    print(f"{count} cases in {path}")


if __name__ == "__main__":
    main()
