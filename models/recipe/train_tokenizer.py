"""Trains the byte-level BPE tokenizer on generated text and writes tokenizer.json and tokenizer_config.json.

    python train_tokenizer.py --out ../baton-tiny
"""

import argparse
import json
import pathlib
import random
import re

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from corpus import chat
from corpus.conversation import conversation, small_conversation, tool_conversation
from corpus.everyday import EVERYDAY
from corpus.words import Split

VOCABULARY = 2048
MARKERS = re.compile("|".join(re.escape(text) for text in chat.SPECIAL + chat.VISIBLE))
ENDINGS = ("s", "ing", "ed", "ly", "er")
# A word with the space before it; every digit alone, the first with its space; then signs; then white space.
PIECES = r" ?\p{L}+| ?\p{N}|'(?:s|t|m|re|ve|ll|d)\b| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def texts(seed: int, conversations: int):
    rng = random.Random(seed)
    for i in range(conversations):
        kind = i % 10
        if kind < 2:
            talk = tool_conversation(rng, Split.TRAIN)
        elif kind < 5:
            talk = small_conversation(rng, Split.TRAIN)
        else:
            talk = conversation(rng, Split.TRAIN, 500)
        for text, _ in talk.parts():
            yield from MARKERS.split(text)
    for word in EVERYDAY:
        yield f" {word}" * 60 + f" {word.capitalize()} {word}" * 12
        for ending in ENDINGS:
            yield f" {word}{ending}" * 12


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--conversations", type=int, default=4000)
    args = arguments.parse_args()

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(chat.VISIBLE), special_tokens=list(chat.SPECIAL), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts(args.seed, args.conversations), trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in chat.VISIBLE])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{chat.BEGIN} $A", pair=f"{chat.BEGIN} $A {chat.BEGIN}:1 $B:1",
        special_tokens=[(chat.BEGIN, tokenizer.token_to_id(chat.BEGIN))],
    )
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(args.out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": chat.BEGIN, "eos_token": chat.END, "pad_token": chat.PAD,
        "add_bos_token": True, "add_eos_token": False, "clean_up_tokenization_spaces": False,
        "model_max_length": 2304,
    }
    (args.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"{tokenizer.get_vocab_size()} tokens -> {args.out}")


if __name__ == "__main__":
    main()
