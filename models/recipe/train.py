"""Trains the model on generated conversations, on a CPU.

    python train.py --tokenizer ../baton-tiny/tokenizer.json --run runs/tiny --steps 6000

Rows grow longer as training goes on. A step is a function of (seed, step number), so a run that was stopped goes on from
its last checkpoint as if it had not been.
"""

import argparse
import dataclasses
import pathlib
import random
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

from model import Model, Shape
from optimizer import Muon
from probe import recall
from rows import RowMaker

TOKENS_PER_STEP = 8192
# (until this share of the steps, {row length: share of the steps}, {lesson: share of the rows})
CURRICULUM = (
    (0.10, {256: 1.0}, {"echo": 0.3, "drill": 0.6, "talk": 0.1}),
    (0.25, {256: 0.7, 512: 0.3}, {"echo": 0.05, "drill": 0.35, "talk": 0.6}),
    (0.40, {256: 0.3, 512: 0.4, 1024: 0.3}, {"echo": 0.02, "drill": 0.08, "talk": 0.9}),
    (0.60, {256: 0.2, 512: 0.3, 1024: 0.5}, {"drill": 0.05, "talk": 0.95}),
    (1.01, {256: 0.15, 512: 0.15, 1024: 0.2, 2304: 0.5}, {"drill": 0.03, "talk": 0.97}),
)
WARMUP, DECAY = 60, 0.35  # steps; share of the steps at the end over which the pace falls to nothing
MUON_LR, ADAM_LR = 0.02, 0.004


def plan(rng: random.Random, progress: float) -> tuple[int, dict[str, float]]:
    """The row length and the lessons of a step."""
    _, lengths, lessons = next(phase for phase in CURRICULUM if progress < phase[0])
    return rng.choices(list(lengths), list(lengths.values()))[0], lessons


def pace(step: int, steps: int) -> float:
    return min(1.0, (step + 1) / WARMUP, max(0.02, (steps - step) / (steps * DECAY)))


def loss_of(model: Model, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    targets, weights = ids[:, 1:].flatten(), weights[:, 1:].flatten()
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model(ids[:, :-1]).flatten(0, 1)
        # Of what the model only reads, a quarter is enough.
        chosen = ((weights > 0.06) | ((weights > 0) & (torch.rand(weights.shape) < 0.25))).nonzero()[:, 0]
        logits = model.logits(hidden[chosen])
    loss = F.cross_entropy(logits.float(), targets[chosen], reduction="none")
    return (loss * weights[chosen]).sum() / weights[chosen].sum()


def save(path: pathlib.Path, step: int, model: Model, optimizers: list, shape: Shape) -> None:
    state = {"step": step, "shape": dataclasses.asdict(shape), "model": model.state_dict(),
             "optimizers": [o.state_dict() for o in optimizers]}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tokenizer", type=pathlib.Path, required=True)
    arguments.add_argument("--run", type=pathlib.Path, required=True)
    arguments.add_argument("--steps", type=int, default=6000)
    arguments.add_argument("--seed", type=int, default=7)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--compile", action="store_true", help="a fifth faster, but slow to start")
    arguments.add_argument("--stop-after", type=float, default=1e9, help="seconds")
    args = arguments.parse_args()
    args.run.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    shape = Shape()
    model = Model(shape)
    matrices = [w for n, w in model.named_parameters() if w.ndim == 2 and "embed" not in n]
    others = [w for n, w in model.named_parameters() if w.ndim != 2 or "embed" in n]
    optimizers = [Muon(matrices, MUON_LR), torch.optim.Adam(others, ADAM_LR, betas=(0.9, 0.98))]
    base = [MUON_LR, ADAM_LR]
    checkpoint, first = args.run / "checkpoint.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        first = state["step"]
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
    if args.compile:
        for layer in model.layers:
            layer.forward = torch.compile(layer.forward, dynamic=False)
    maker = RowMaker(Tokenizer.from_file(str(args.tokenizer)))
    print(f"{sum(w.numel() for w in model.parameters())} weights, from step {first}", flush=True)

    started, mean, tokens = time.time(), None, 0
    for step in range(first, args.steps):
        rng = random.Random(f"{args.seed}/{step}")
        torch.manual_seed(args.seed * 1_000_003 + step)
        length, lessons = plan(rng, step / args.steps)
        ids, weights = maker.batch(rng, max(1, TOKENS_PER_STEP // length), length, lessons)
        loss = loss_of(model, torch.from_numpy(ids), torch.from_numpy(weights))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for optimizer, lr in zip(optimizers, base):
            for group in optimizer.param_groups:
                group["lr"] = lr * pace(step, args.steps)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        tokens += ids.size
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if (step + 1) % 50 == 0:
            rate = tokens / (time.time() - started)
            print(f"step {step + 1} loss {mean:.4f} {rate:.0f} tokens/s {time.time() - started:.0f} s", flush=True)
        if (step + 1) % 200 == 0:
            print("  recall", recall(model, maker, max(512, length)), flush=True)
            save(checkpoint, step + 1, model, optimizers, shape)
        if time.time() - started > args.stop_after:
            save(checkpoint, step + 1, model, optimizers, shape)
            break


if __name__ == "__main__":
    main()
