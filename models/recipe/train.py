"""Trains the model on generated conversations, on a CPU.

    python train.py --tokenizer ../baton-tiny/tokenizer.json --run runs/tiny --steps 3000

Rows grow longer during training. A step is a function of (seed, step number), so a run that was stopped continues from
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

from corpus.conversation import RECALL
from model import Model, Shape
from optimizer import Muon
from probe import recall
from rows import RowMaker, positions
from start import start


@dataclasses.dataclass(frozen=True)
class Phase:
    until: int  # the step that ends it
    tokens: int  # per step
    lengths: dict[int, float]  # row length: share of the steps
    lessons: dict[str, float]  # kind of row: share of the rows
    stretched: float = 0.0  # share of the rows with gaps in their positions


LAST = 1_000_000
CURRICULUM = (
    Phase(280, 8192, {256: 1.0}, {"echo": 0.15, "drill": 0.65, "talk": 0.2}),
    Phase(400, 8192, {256: 0.7, 512: 0.3}, {"echo": 0.05, "drill": 0.35, "talk": 0.6}),
    Phase(450, 4096, {256: 0.3, 512: 0.4, 1024: 0.3}, {"echo": 0.02, "drill": 0.18, "talk": 0.8}),
    Phase(700, 4096, {256: 0.5, 512: 0.5}, {"echo": 0.02, "drill": 0.28, "talk": 0.7}),
    Phase(1100, 4608, {256: 0.35, 512: 0.35, 1024: 0.2, 2304: 0.1}, {"drill": 0.15, "talk": 0.85}, 0.6),
    Phase(1850, 4608, {256: 0.2, 512: 0.25, 1024: 0.25, 2304: 0.3}, {"drill": 0.05, "talk": 0.95}, 0.6),
    Phase(1950, 4608, {256: 0.25, 512: 0.25, 1024: 0.25, 2304: 0.25},
          {"drill": 0.04, "doubt": 0.12, "sums": 0.06, "talk": 0.78}, 0.6),
    Phase(2230, 4608, {256: 0.3, 512: 0.25, 1024: 0.25, 2304: 0.2},
          {"drill": 0.04, "doubt": 0.1, "sums": 0.14, "tools": 0.05, "talk": 0.67}, 0.6),
    Phase(LAST, 4608, {256: 0.2, 512: 0.25, 1024: 0.25, 2304: 0.3},
          {"drill": 0.06, "sums": 0.05, "tools": 0.04, "talk": 0.85}, 0.6),
)
COMPILED_FROM = 1024  # shorter rows gain too little from it
# (step, pace): both learning rates are multiplied by the pace, which is a straight line between these.
PACE = ((0, 1 / 60), (59, 1.0), (750, 1.0), (1100, 0.533), (1750, 0.02), (1790, 0.4), (1950, 0.231), (2230, 0.02),
        (2260, 0.6), (2650, 0.4), (3000, 0.02))
MUON_LR, ADAM_LR = 0.02, 0.004


def pace(step: int) -> float:
    for (a, at_a), (b, at_b) in zip(PACE, PACE[1:]):
        if step < b:
            return at_a + (at_b - at_a) * (step - a) / (b - a)
    return PACE[-1][1]


def loss_of(model: Model, ids: torch.Tensor, weights: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, float]:
    """The weighted loss, and for the log the plain loss of the answers that recall something."""
    targets, weights = ids[:, 1:].flatten(), weights[:, 1:].flatten()
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model(ids[:, :-1], places).flatten(0, 1)
        # A quarter of the texts that the model only reads is enough.
        chosen = ((weights > 0.06) | ((weights > 0) & (torch.rand(weights.shape) < 0.25))).nonzero()[:, 0]
        logits = model.logits(hidden[chosen])
    loss = F.cross_entropy(logits.float(), targets[chosen], reduction="none")
    weights = weights[chosen]
    return (loss * weights).sum() / weights.sum(), loss.detach()[weights == RECALL].mean().item()


def save(path: pathlib.Path, step: int, model: Model, optimizers: list, shape: Shape) -> None:
    state = {"step": step, "shape": dataclasses.asdict(shape), "model": model.state_dict(),
             "optimizers": [o.state_dict() for o in optimizers]}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--tokenizer", type=pathlib.Path, required=True)
    arguments.add_argument("--run", type=pathlib.Path, required=True)
    arguments.add_argument("--steps", type=int, default=3000)
    arguments.add_argument("--seed", type=int, default=7)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--compile", action="store_true", help="long rows a fifth faster, after a slow start")
    arguments.add_argument("--stop-after", type=float, default=1e9, help="seconds")
    args = arguments.parse_args()
    args.run.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)

    shape = Shape()
    model = Model(shape)
    start(model)
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
        phase = next(phase for phase in CURRICULUM if step < phase.until)
        length = rng.choices(list(phase.lengths), list(phase.lengths.values()))[0]
        ids, weights = maker.batch(rng, phase.tokens // length, length, phase.lessons)
        torch.compiler.set_stance("default" if length >= COMPILED_FROM else "force_eager")
        places = positions(rng, len(ids), length, shape.context, phase.stretched)
        loss, answers = loss_of(model, torch.from_numpy(ids), torch.from_numpy(weights), torch.from_numpy(places))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for optimizer, lr in zip(optimizers, base):
            for group in optimizer.param_groups:
                group["lr"] = lr * pace(step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        tokens += ids.size
        now = torch.tensor([loss.item(), answers if answers == answers else mean[1]])  # a step may hold no such answer
        mean = now if mean is None else mean.lerp(now, 0.05)
        if (step + 1) % 50 == 0:
            rate = tokens / (time.time() - started)
            print(f"step {step + 1} loss {mean[0]:.4f} answers {mean[1]:.4f} {rate:.0f} tokens/s {time.time() - started:.0f} s", flush=True)
        if (step + 1) % 200 == 0:
            print("  recall", recall(model, maker, max(512, length)), flush=True)
        if (step + 1) % 50 == 0 or step + 1 == args.steps:
            save(checkpoint, step + 1, model, optimizers, shape)
        if time.time() - started > args.stop_after:
            save(checkpoint, step + 1, model, optimizers, shape)
            break


if __name__ == "__main__":
    main()
