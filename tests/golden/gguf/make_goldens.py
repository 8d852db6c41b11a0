#!/usr/bin/env python3
"""Makes the golden GGUF files by the `gguf` package, and what public tools read from them.

    pip install -r requirements.txt
    ./make_goldens.py

data/blocks.gguf has a tensor of each format that is read, and blocks.safetensors their numbers by the package's dequantize.
data/mixed.gguf is a model of one layer in formats as a "Q4_K_M" file mixes them, and mixed.json what transformers computes
from the same file: logits of some positions of a prompt.

tokenizers/NAME.gguf are tokenizers, and NAME.json what their own libraries make of texts: of ../text/tokenizers the
`tokenizers` library, with the options of the models that llama-bpe, qwen2 and gpt-2 stand for; and `sentencepiece`, of a
model that it has trained here.
"""

import importlib.util
import io
import json
import pathlib

import gguf
import numpy as np
import torch
import sentencepiece
from gguf import GGMLQuantizationType as Type
from gguf import TokenType
from safetensors.numpy import save_file
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM

DATA = pathlib.Path(__file__).parent / "data"
TEXT = pathlib.Path(__file__).parent.parent / "text"
# Bytes of a block, and where its float16 scales stand.
BLOCKS = {
    "F32": (4, []), "F16": (2, []), "BF16": (2, []), "Q8_0": (34, [0]), "Q4_0": (18, [0]), "Q4_1": (20, [0, 2]),
    "Q5_0": (22, [0]), "Q5_1": (24, [0, 2]), "Q4_K": (144, [0, 2]), "Q5_K": (176, [0, 2]), "Q6_K": (210, [208]),
}
# 0, the smallest subnormal, the largest subnormal, the largest number, and their negatives.
EXTREME = np.array([0, 0x0001, 0x03FF, 0x7BFF, 0x8000, 0x8001, 0x83FF, 0xFBFF], dtype=np.uint16)


def random_blocks(rng, name, rows, blocks, scale=None):
    """Any bytes, with scales that are finite: of `scale`, or of all sizes, extreme ones among them."""
    size, places = BLOCKS[name]
    if not places:
        values = rng.standard_normal((rows, blocks)).astype(np.float32)
        values[0, :4] = [0, -0.0, 65504, 6e-8]
        return gguf.quants.quantize(values, Type[name])
    data = rng.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
    for place in places:
        if scale is None:
            halves = rng.integers(0, 0x7C00, (rows, blocks)).astype(np.uint16)
            halves |= (rng.integers(0, 2, (rows, blocks)) << 15).astype(np.uint16)
            flat = halves.reshape(-1)
            flat[: min(len(flat), len(EXTREME))] = np.roll(EXTREME, place)[: len(flat)]
        else:
            halves = (scale * rng.uniform(0.5, 1.5, (rows, blocks))).astype(np.float16).view(np.uint16)
        data[..., place], data[..., place + 1] = halves & 255, halves >> 8
    return data.reshape(rows, blocks * size)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_blocks():
    rng = np.random.default_rng(20)
    writer = gguf.GGUFWriter(DATA / "blocks.gguf", "llama")
    expected = {}
    for name in BLOCKS:
        data = random_blocks(rng, name, 3, 5 if BLOCKS[name][1] else 20)
        writer.add_tensor(name.lower(), data, raw_dtype=Type[name])
        with np.errstate(over="ignore"):
            expected[name.lower()] = gguf.quants.dequantize(data, Type[name]).astype(np.float32)
    finish(writer)
    save_file(expected, DATA / "blocks.safetensors")


def make_mixed():
    hidden, heads, kv_heads, dim, wide, vocabulary = 256, 4, 2, 16, 256, 96
    rng = np.random.default_rng(21)
    path = DATA / "mixed.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("mixed")
    writer.add_block_count(1)
    writer.add_context_length(256)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(wide)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_rope_dimension_count(dim)
    writer.add_rope_freq_base(5000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(["<s>", "</s>"] + [chr(33 + i) for i in range(vocabulary - 3)] + ["AB"])
    writer.add_token_types([3, 3] + [1] * (vocabulary - 2))
    writer.add_token_merges(["A B"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}")

    def matrix(name, kind, rows, cols, scale):
        size, places = BLOCKS[kind]
        if places:
            per_block = gguf.GGML_QUANT_SIZES[Type[kind]][0]
            data = random_blocks(rng, kind, rows, cols // per_block, scale)
        else:
            data = gguf.quants.quantize((rng.standard_normal((rows, cols)) * scale).astype(np.float32), Type[kind])
        writer.add_tensor(name, data, raw_dtype=Type[kind])

    def norm(name):
        writer.add_tensor(name, (1 + 0.1 * rng.standard_normal(hidden)).astype(np.float32))

    # Scales so small that the numbers are some hundredths: of q4_k scale x 6 bits x 4 bits, of q6_k x 8 bits x 6 bits.
    matrix("token_embd.weight", "Q6_K", vocabulary, hidden, 4e-4)
    matrix("output.weight", "Q8_0", vocabulary, hidden, 8e-4)
    norm("output_norm.weight")
    norm("blk.0.attn_norm.weight")
    matrix("blk.0.attn_q.weight", "Q4_K", heads * dim, hidden, 4e-4)
    matrix("blk.0.attn_k.weight", "Q5_K", kv_heads * dim, hidden, 2e-4)
    matrix("blk.0.attn_v.weight", "F16", kv_heads * dim, hidden, 0.1)
    matrix("blk.0.attn_output.weight", "Q4_0", hidden, heads * dim, 2e-2)
    norm("blk.0.ffn_norm.weight")
    matrix("blk.0.ffn_gate.weight", "Q4_K", wide, hidden, 3e-4)
    matrix("blk.0.ffn_up.weight", "Q4_K", wide, hidden, 3e-4)
    matrix("blk.0.ffn_down.weight", "Q6_K", hidden, wide, 5e-5)
    finish(writer)

    # The mean of q4_k and q5_k numbers is not 0 here; transformers and we see the same.
    model = AutoModelForCausalLM.from_pretrained(DATA, gguf_file=path.name, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    prompt = [0] + [int(i) for i in rng.integers(2, vocabulary, 39)]
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits[0]
    rows = [39, 38, 20]
    golden = {"prompt": prompt, "rows": rows, "logits": [[float(x) for x in logits[r].tolist()] for r in rows]}
    (DATA / "mixed.json").write_text(json.dumps(golden) + "\n")
    print(model.config)
    print("logits", logits.min(), logits.max(), "std", logits.std())


def texts():
    spec = importlib.util.spec_from_file_location("make_tokenizers", TEXT / "make_tokenizers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CORPUS, module.TEXTS


def tokenizer_writer(name, model, tokens, types, bos, eos, **more):
    writer = gguf.GGUFWriter(DATA / "tokenizers" / f"{name}.gguf", "llama")
    writer.add_tokenizer_model(model)
    if "pre" in more:
        writer.add_tokenizer_pre(more["pre"])
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if "scores" in more:
        writer.add_token_scores(more["scores"])
    if "merges" in more:
        writer.add_token_merges(more["merges"])
    if "unknown" in more:
        writer.add_unk_token_id(more["unknown"])
    writer.add_bos_token_id(bos)
    writer.add_eos_token_id(eos)
    writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m['content'] + eos_token }}{% endfor %}")
    finish(writer)


def save_texts(name, vocabulary, encode):
    """encode(text, special) -> ids"""
    encoded = [{"text": t, "ids": encode(t, False), "ids_with_special": encode(t, True)} for t in texts()[1]]
    text = json.dumps({"vocabulary": vocabulary, "encoded": encoded}).replace('{"text"', '\n{"text"')
    (DATA / "tokenizers" / f"{name}.json").write_text(text + "\n")


def make_byte_level(name, source, pre, change):
    """A tokenizer of ../text under the name of a pre-tokenizer, with that one's options."""
    definition = json.loads((TEXT / "tokenizers" / source / "tokenizer.json").read_text())
    change(definition)
    tokenizer = Tokenizer.from_str(json.dumps(definition))
    ids = tokenizer.get_vocab(with_added_tokens=True)
    tokens, types = [""] * (max(ids.values()) + 1), [TokenType.UNUSED] * (max(ids.values()) + 1)
    for token, i in ids.items():
        tokens[i], types[i] = token, TokenType.NORMAL
    for added in definition["added_tokens"]:
        types[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    merges = [" ".join(pair) for pair in definition["model"]["merges"]]
    tokenizer_writer(name, "gpt2", tokens, types, ids["<s>"], ids["</s>"], pre=pre, merges=merges)
    save_texts(name, len(tokens), lambda text, special: tokenizer.encode(text, add_special_tokens=special).ids)


def as_llama3(definition):
    definition["model"]["ignore_merges"] = True  # as Llama 3's tokenizer.json


def as_gpt2(definition):
    definition["normalizer"] = None
    definition["pre_tokenizer"] = json.loads(pre_tokenizers.ByteLevel(add_prefix_space=False).__getstate__())
    definition["post_processor"] = None


def make_sentencepiece():
    corpus, _ = texts()
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for text in corpus for line in text.split("\n")] * 3), model_writer=model,
        model_type="bpe", vocab_size=640, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, add_dummy_prefix=True, split_digits=True, allow_whitespace_only_pieces=True,
        user_defined_symbols=["<tool_call>"], minloglevel=2)
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    count = pieces.get_piece_size()
    kinds = [(pieces.is_unknown, TokenType.UNKNOWN), (pieces.is_control, TokenType.CONTROL),
             (pieces.is_byte, TokenType.BYTE), (pieces.is_unused, TokenType.UNUSED)]
    tokens = [pieces.id_to_piece(i) for i in range(count)]
    types = [next((kind for has, kind in kinds if has(i)), TokenType.NORMAL) for i in range(count)]
    types[tokens.index("<tool_call>")] = TokenType.USER_DEFINED
    tokenizer_writer("sentencepiece", "llama", tokens, types, pieces.bos_id(), pieces.eos_id(),
                     scores=[pieces.get_score(i) for i in range(count)], unknown=pieces.unk_id())
    save_texts("sentencepiece", count, lambda text, special: pieces.encode(text, add_bos=special))


def main():
    (DATA / "tokenizers").mkdir(parents=True, exist_ok=True)
    make_blocks()
    make_mixed()
    make_byte_level("llama-bpe", "llama3_like", "llama-bpe", as_llama3)
    make_byte_level("qwen2", "qwen_like", "qwen2", lambda definition: None)
    make_byte_level("gpt-2", "llama3_like", "gpt-2", as_gpt2)
    make_sentencepiece()


if __name__ == "__main__":
    main()
