#!/usr/bin/env python3
"""Makes data/pretokenizers.json: how llama.cpp itself cuts texts under each name of a pre-tokenizer.

    pip install -r requirements.txt    # builds llama.cpp
    ./make_pretokenizers.py

One small vocabulary serves all names. Its merges were learned without any cutting into words, so they join letters with
digits, spaces, marks and line ends: wherever two pre-tokenizers cut a text at different places, the ids differ. Its last
tokens are words that no merges make, which only tokenizers that take whole words give.

tekken: the models' own pattern tells capitals from small letters in all scripts and takes combining marks as letters;
llama.cpp's does so for ASCII alone. The models' pattern is the one that is read here, so texts in which the two differ
are left out for that name (`CASED`). Under Qwen's names characters are composed (NFC), which llama.cpp does not do: texts
that NFC changes are left out for them. White space beyond ASCII loses its place in classes of characters in llama.cpp,
so no text has an ideographic space (deepseek-llm).
"""

import json
import pathlib
import random
import sys
import tempfile
import unicodedata

import gguf
import llama_cpp
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

DATA = pathlib.Path(__file__).parent / "data"
NAMES = ["llama-bpe", "smaug-bpe", "falcon3", "tekken", "qwen2", "deepseek-r1-qwen", "gpt-2", "smollm", "deepseek-llm",
         "deepseek-coder", "default", ""]
COMPOSED = {"qwen2", "deepseek-r1-qwen"}
WHOLE = ["Zebra", "Ġquiz", "jumbo"]
VOCABULARY = 900

PIECES = (["the", "The", "THE", "it", "don", "we", "I", "a", "def", "return", "camelCase", "HTTPServer", "XMLs", "iPhone"]
          + ["'s", "'S", "'t", "'LL", "'re", "'ve", "'m", "'D", "'", "''", "\""]
          + ["1", "22", "333", "4444", "55555", "2024", "3.14", "1,000"]
          + [" ", " ", " ", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\n  ", "\t\t"]
          + [".", ",", "!", "?", ":", ";", "(", ")", "[", "]", "{", "}", "-", "--", "/", "//", "...", "#", "$", "=", "==",
             "<", ">", "^", "~", "|", "+", "*", "_", "`", "@", "&", "%", "\\"]
          + ["日本", "語", "の", "テキスト", "中文", "字符", "한국어", "。", "，", "！", "～", "（", "）", "”", "…"]
          + ["naïve", "été", "straße", "привет", "Ελληνικά", "שלום", "مرحبا", "ไทย", "ქართული"]
          + ["½", "²", "٣", "४", "Ⅷ", "€", "∑", "©", "🙂", "🇩🇪", "\u00a0", "\u200b", "ª", "ǅ"])
CASED = ["ÉCOLE", "École", "étÉ", "ПРИВЕТ", "Привет", "e\u0301a", "A\u030ab", "ǅungla", "ΑΒγ", "हिन्दी"]

FIXED = [
    "", " ", "a", "Hello, world!", "  leading and   inner  spaces  ", "\n\n\t \r\n end\n", "I'm they'll WE'VE don't 'tis",
    "1234567 3.14 1,000,000 ½ x1y22z333", "日本語のテキストと中文字符。한국어!", "🙂🚀👩‍👩‍👧‍👦 flags 🇩🇪🇯🇵",
    "def f(x):\n    if x != 0:\n        return x ** 2  # ok\n", "a  \nb\t\n\n  c   ", "trailing   ", "x\n\n\n", "\r\n\r\n",
    "Zebra quiz jumbo Zebras", "HTTPServer iPhone camelCase XMLs aB Ab ABc", "///path/to/file\n//comment\r\n",
    "control \x01\x7f \ufeff\ufffd", "ª º ʔ ა Ა 𝔘 𝟙", "price: $5.00+tax=<total>^2~|x|`y`",
]


def random_text(rng, pieces, length):
    return "".join(rng.choice(pieces) for _ in range(length))


def vocabulary():
    rng = random.Random(7)
    corpus = [random_text(rng, PIECES + CASED, 60) for _ in range(400)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(pair) for pair in model["merges"]]
    return tokens + WHOLE + ["<s>", "</s>"], merges


def file_of(path, name, tokens, merges):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    if name:
        writer.add_tokenizer_pre(name)
    writer.add_token_list(tokens)
    writer.add_token_types([1] * (len(tokens) - 2) + [3, 3])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(len(tokens) - 2)
    writer.add_eos_token_id(len(tokens) - 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    tokens, merges = vocabulary()
    rng = random.Random(8)
    texts = FIXED + [random_text(rng, PIECES, 24) for _ in range(24)]
    cased = CASED + [random_text(rng, PIECES + CASED, 24) for _ in range(6)]
    golden = {"tokens": tokens, "merges": merges, "texts": texts + cased, "names": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in NAMES:
            path = pathlib.Path(folder) / "vocabulary.gguf"
            file_of(path, name, tokens, merges)
            llama = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
            ids = []
            for i, text in enumerate(texts + cased):
                left_out = (name == "tekken" and (i >= len(texts) or any(c in text for c in ("हि", "ǅ", "𝔘")))
                            or name in COMPOSED and unicodedata.normalize("NFC", text) != text)
                ids.append(None if left_out else llama.tokenize(text.encode(), add_bos=False, special=False))
            # If the file does not say.
            bos = llama.tokenize(b"a", add_bos=True, special=False)[0] == len(tokens) - 2
            golden["names"][name] = {"ids": ids, "bos": bos}
            print(f"{name or '(none)'}: {sum(i is not None for i in ids)} texts, {len(set(map(str, ids)))} different")
    text = json.dumps(golden, ensure_ascii=True)
    for start in ('"texts"', '"names"', '{"ids"'):
        text = text.replace(start, "\n" + start)
    (DATA / "pretokenizers.json").write_text(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
