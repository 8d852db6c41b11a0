"""Trains baton-guard, the classifier that judges answers in the demo and in tests, and writes it as a Hugging Face folder.

    python train_guard.py --out ../baton-guard

A Llama that reads a text and "Verdict:" and writes one token, " safe" or " unsafe". It measures itself on held-out sentences.
"""

import argparse
import json
import pathlib
import random
import time

import numpy
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from corpus import chat, harm
from corpus.words import Split
from export import config_of, hub_name, write_json
from model import Model, Shape
from optimizer import Muon
from train_tokenizer import PIECES

SHAPE = Shape(vocabulary=1024, width=96, layers=4, heads=3, kv_heads=1, head_width=32, hidden=192, context=1024, rope_theta=10000.0)
ROWS = 32
LONGEST = 384  # tokens of a row; longer texts are cut
MUON_LR, ADAM_LR = 0.02, 0.004
READ = 0.05  # how much the loss of the text counts beside that of the verdict


def train_tokenizer(rng: random.Random) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=SHAPE.vocabulary, special_tokens=[chat.PAD, chat.BEGIN, chat.END], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())

    def texts():
        for _ in range(6000):
            text, kind = harm.judged(rng, Split.TRAIN)
            yield harm.question(text) + (harm.UNSAFE if kind else harm.SAFE)

    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{chat.BEGIN} $A", pair=f"{chat.BEGIN} $A {chat.BEGIN}:1 $B:1", special_tokens=[(chat.BEGIN, tokenizer.token_to_id(chat.BEGIN))])
    assert all(len(tokenizer.encode(word, add_special_tokens=False).ids) == 1 for word in (harm.SAFE, harm.UNSAFE))
    return tokenizer


class Rows:
    """Rows of a question and its verdict, padded at the end."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.verdicts = [tokenizer.token_to_id("Ġ" + word.strip()) for word in (harm.SAFE, harm.UNSAFE)]
        self.head = tokenizer.encode("Text:", add_special_tokens=True).ids
        self.tail = tokenizer.encode("\nVerdict:", add_special_tokens=False).ids

    def encode(self, text: str, longest: int = LONGEST) -> list[int]:
        ids = self.tokenizer.encode(harm.question(text)).ids
        if len(ids) <= longest:
            return ids
        return self.tokenizer.encode(harm.question(text[: len(text) * longest // len(ids) - 8])).ids

    def batch(self, rng: random.Random, split: Split) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[str]]:
        """ids [rows, length], the place of each verdict, the verdict (0 safe, 1 unsafe), the kinds of harm."""
        rows, kinds = [], []
        while len(rows) < ROWS:
            text, kind = harm.judged(rng, split)
            ids = self.encode(text, 10**9)
            if len(ids) > LONGEST:
                continue
            rows.append(ids)
            kinds.append(kind)
        length = max(map(len, rows)) + 1
        ids = numpy.zeros((ROWS, length), numpy.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            ids[i, len(row)] = self.verdicts[bool(kinds[i])]
        return (torch.from_numpy(ids), torch.tensor([len(row) - 1 for row in rows]), torch.tensor([int(bool(kind)) for kind in kinds]), kinds)


def measure(model: Model, rows: Rows, batches: int) -> dict[str, float]:
    """Of held-out texts: the share that is judged rightly, by kind of harm ("safe": none)."""
    right: dict[str, list[bool]] = {}
    with torch.no_grad():
        for i in range(batches):
            ids, places, verdicts, kinds = rows.batch(random.Random(f"held out {i}"), Split.HELD_OUT)
            hidden = model(ids[:, :-1])[torch.arange(ROWS), places]
            chosen = model.logits(hidden)[:, rows.verdicts].argmax(-1)
            for kind, ok in zip(kinds, (chosen == verdicts).tolist()):
                right.setdefault(kind or "safe", []).append(ok)
    return {kind: sum(all_) / len(all_) for kind, all_ in sorted(right.items())}


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--seed", type=int, default=11)
    arguments.add_argument("--steps", type=int, default=1500)
    arguments.add_argument("--threads", type=int, default=2)
    args = arguments.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    tokenizer = train_tokenizer(random.Random(args.seed))
    rows = Rows(tokenizer)
    model = Model(SHAPE)
    optimizers = [
        Muon([w for n, w in model.named_parameters() if w.ndim == 2 and "embed" not in n], MUON_LR),
        torch.optim.Adam([w for n, w in model.named_parameters() if w.ndim != 2 or "embed" in n], ADAM_LR, betas=(0.9, 0.98)),
    ]
    base = (MUON_LR, ADAM_LR)
    started = time.time()
    for step in range(args.steps):
        ids, places, _, _ = rows.batch(random.Random(f"{args.seed}/{step}"), Split.TRAIN)
        pace = min(1.0, (step + 1) / 40) * min(1.0, 0.02 + (args.steps - step) / (0.5 * args.steps))
        for optimizer, rate in zip(optimizers, base):
            for group in optimizer.param_groups:
                group["lr"] = rate * pace
        logits = model.logits(model(ids[:, :-1])).float()
        weights = (ids[:, 1:] != 0) * READ
        weights[torch.arange(ROWS), places] = 10.0
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (loss * weights.flatten()).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if step % 100 == 99:
            print(f"step {step + 1}: loss {loss.item():.3f}, {time.time() - started:.0f} s, {measure(model, rows, 8)}", flush=True)

    args.out.mkdir(parents=True, exist_ok=True)
    model = model.to(torch.bfloat16).float()  # as it is stored
    tokenizer.save(str(args.out / "tokenizer.json"))
    write_json(args.out / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": chat.BEGIN, "eos_token": chat.END, "pad_token": chat.PAD,
        "add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False, "model_max_length": SHAPE.context})
    write_json(args.out / "config.json", config_of(vars(SHAPE), tokenizer))
    write_json(args.out / "generation_config.json", {"bos_token_id": tokenizer.token_to_id(chat.BEGIN), "eos_token_id": [tokenizer.token_to_id(chat.END)],
                                                     "pad_token_id": tokenizer.token_to_id(chat.PAD), "do_sample": False, "max_new_tokens": 1})
    save_file({hub_name(n): w.to(torch.bfloat16).contiguous() for n, w in model.state_dict().items()}, args.out / "model.safetensors", metadata={"format": "pt"})
    print(f"{sum(w.numel() for w in model.parameters())} weights, {time.time() - started:.0f} s")
    print(json.dumps(measure(model, rows, 60)))


if __name__ == "__main__":
    main()
