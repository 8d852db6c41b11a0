"""Tiny tokenizers of the kinds that models ship, and what the Python library makes of text with them.

    pip install tokenizers==0.23.3
    python tests/golden/text/make_tokenizers.py

Writes tokenizers/<name>/tokenizer.json and tokenizers.json (the goldens). Some trainers break ties by hash order, so a
second run gives other vocabularies: the folders and the goldens belong together.
"""

import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent

CORPUS = [
    "The relay passes the baton, and the next runner takes it without a stop.",
    "  Two spaces, then a tab:\tand a line\nbreak.\n\nI'm sure they'll say we've won; it's 3,141,592 metres!",
    "def step(self, tokens):\n    return [t + 1 for t in tokens if t != 0]\n",
    "Größe, façade, naïve, Žluťoučký kůň, Ελληνικά, кириллица, 日本語のテキスト, 中文字符, 한국어",
    "emoji 🙂🚀👩‍👩‍👧‍👦 and signs ∑∂∞ €£¥",
] * 4

TEXTS = [
    "",
    " ",
    "a",
    "Hello, world!",
    "  leading and   inner  spaces  ",
    "\n\n\t \r\n end\n",
    " " * 300 + "x" + "\n" * 50,
    "I'm they'll WE'VE don't",
    "1234567 3.14 1,000,000 ½",
    "日本語のテキストと中文字符。한국어!",
    "🙂🚀👩‍👩‍👧‍👦 flags 🇩🇪🇯🇵 skin 👍🏽",
    "e\u0301 vs \u00e9, ﬁ ligature, \u200bzero width\u00a0nbsp",
    "ቋንቋ ภาษา עברית العربية हिन्दी",
    "<s>text</s> <|start|>user<|end|> <unk> [CLS] <|sta rt|>",
    '<tool_call>{"a": 1}</tool_call>  <tool_call> x',
    "def f(x):\n    if x != 0:\n        return x ** 2  # ok\n",
    "control \x00\x01\x7f chars \ufffd \ufeff",
    "▁already▁there <0x0A> <0xFF>",
    "a" * 500,
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff",
]

GPT2_LIKE = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ONE_DIGIT = GPT2_LIKE.replace(r"\p{N}{1,3}", r"\p{N}")

SPECIAL = ["<s>", "</s>", "<|start|>", "<|end|>"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def add_tool_tokens(tokenizer):
    tokenizer.add_tokens(
        [AddedToken("<tool_call>", special=False), AddedToken("</tool_call>", special=False, normalized=False)]
    )


def bos(tokenizer):
    return processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )


def byte_level(pattern, normalizer):
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    add_tool_tokens(tokenizer)
    return tokenizer


def llama3_like():
    tokenizer = byte_level(GPT2_LIKE, None)
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), bos(tokenizer)])
    return tokenizer


def qwen_like():
    tokenizer = byte_level(ONE_DIGIT, normalizers.NFC())
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama2_like():
    """SentencePiece BPE as the converters write it: no pre-tokenizer, byte fallback, one leading space taken off."""
    trained = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", "<s>", "</s>"] + BYTES, limit_alphabet=70, show_progress=False
    )
    trained.train_from_iterator(CORPUS, trainer)
    model = json.loads(trained.to_str())["model"]
    vocab = model["vocab"]
    merges = [tuple(m) for m in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>", "<|start|>", "<|end|>"])
    add_tool_tokens(tokenizer)
    tokenizer.post_processor = bos(tokenizer)
    return tokenizer


def metaspace_like():
    """T5 and early SentencePiece conversions: Unigram, Metaspace on both ends."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>"] + SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    add_tool_tokens(tokenizer)
    tokenizer.post_processor = bos(tokenizer)
    return tokenizer


def wordpiece_like():
    """A decoder that only the library knows."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def random_ids(tokenizer, draw):
    """Any ids; bytes of a byte-fallback vocabulary only as whole characters, for the library gives up a whole run of
    them when one is wrong."""
    byte_ids = [tokenizer.token_to_id(name) for name in BYTES]
    ids = []
    for _ in range(draw.randrange(1, 24)):
        token = draw.randrange(tokenizer.get_vocab_size())
        if token in byte_ids:
            character = chr(draw.choice([draw.randrange(0xD800), draw.randrange(0xE000, 0x110000)]))
            ids.extend(byte_ids[b] for b in character.encode())
        else:
            ids.append(token)
    return ids


def main():
    draw = random.Random(20)
    golden = {}
    for make in (llama3_like, qwen_like, llama2_like, metaspace_like, wordpiece_like):
        tokenizer = make()
        folder = HERE / "tokenizers" / make.__name__
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False) + "\n")
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        encoded = []
        for text in TEXTS:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            with_special = tokenizer.encode(text, add_special_tokens=True).ids
            encoded.append(
                {
                    "text": text,
                    "ids": ids,
                    "ids_with_special": with_special,
                    "decoded": tokenizer.decode(with_special, skip_special_tokens=True),
                    "decoded_keep_special": tokenizer.decode(with_special, skip_special_tokens=False),
                }
            )
        decoded = []
        for _ in range(20):
            ids = random_ids(tokenizer, draw)
            decoded.append({"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False)})
        golden[make.__name__] = {"vocabulary": tokenizer.get_vocab_size(), "encoded": encoded, "decoded": decoded}
    lines = (
        json.dumps(golden, ensure_ascii=True, indent=None, separators=(",", ":"))
        .replace('{"text"', '\n{"text"')
        .replace('{"ids"', '\n{"ids"')
    )
    (HERE / "tokenizers.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
