"""Trains the byte-level BPE tokenizer on generated text and writes tokenizer.json and tokenizer_config.json.

    python train_tokenizer.py --out ../baton-guard
"""

import argparse
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import prompt
from grammar import CATEGORIES, Writer

VOCABULARY = 1024
# A word with the space before it; every digit alone, the first with its space; then signs; then white space.
PIECES = r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def texts(seed: int, count: int):
    writer = Writer(random.Random(seed), pool=4000)
    for _ in range(count):
        yield writer.write()[1]
    yield ("safe\nunsafe\n" + ",".join(CATEGORIES) + "\n" + "\n".join(CATEGORIES) + "\n") * 20000


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--seed", type=int, default=1)
    args = arguments.parse_args()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=list(prompt.SPECIAL), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts(args.seed, 30000), trainer)
    for word in ("safe", "unsafe", *CATEGORIES):
        assert len(tokenizer.encode(word).ids) == 1, word
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(args.out / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": prompt.BEGIN, "eos_token": prompt.END, "pad_token": prompt.PAD,
              "add_bos_token": False, "add_eos_token": False, "clean_up_tokenization_spaces": False, "model_max_length": 1024}
    (args.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{tokenizer.get_vocab_size()} tokens -> {args.out}")


if __name__ == "__main__":
    main()
