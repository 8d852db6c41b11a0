#!/usr/bin/env python3
"""A Llama of a real shape with random weights, as a Hugging Face folder: for measurements of speed where no model is.

    random_model.py OUT [--shape 8b|1b|tiny] [--seed N] [--tokenizer DIR] [--device cuda|cpu]

Writes OUT/config.json, OUT/generation_config.json and OUT/model.safetensors in bf16 (8b: 16 GB), drawn on the device
and written piece by piece, so that the host holds no more than a piece. Matrices are normal(0, 0.02), norms are 1.
The same seed gives the same weights on the same kind of device, not on the other kind. Needs PyTorch, nothing else.

The vocabulary is the shape's, or the tokenizer's if that is larger: Baton loads no model that embeds fewer tokens than
its tokenizer has. If it is the shape's, most generated ids are none of the tokenizer's: Baton counts them as tokens and
gives their ids, and their text is empty.
"""

import argparse
import ctypes
import json
import pathlib
import shutil
import struct
import time

import torch

SHAPES = {
    # Llama 3.1 8B and Llama 3.2 1B, without their scaling of RoPE; one for tests of this program.
    "8b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
               intermediate_size=14336, vocab_size=128256, tie_word_embeddings=False, max_position_embeddings=131072),
    "1b": dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, head_dim=64,
               intermediate_size=8192, vocab_size=128256, tie_word_embeddings=True, max_position_embeddings=131072),
    "tiny": dict(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
                 intermediate_size=256, vocab_size=512, tie_word_embeddings=True, max_position_embeddings=2048),
}
DEVIATION = 0.02
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json",
                   "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json")
SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")
PIECE = 1 << 26  # values, 128 MB: what is copied to the host and written at a time


def tensors(shape):
    """(name, dimensions) of every tensor, in the file's order."""
    hidden, wide = shape["hidden_size"], shape["intermediate_size"]
    query = shape["num_attention_heads"] * shape["head_dim"]
    kv = shape["num_key_value_heads"] * shape["head_dim"]
    yield "model.embed_tokens.weight", (shape["vocab_size"], hidden)
    for layer in range(shape["num_hidden_layers"]):
        for name, dimensions in (("input_layernorm", (hidden,)), ("self_attn.q_proj", (query, hidden)),
                                 ("self_attn.k_proj", (kv, hidden)), ("self_attn.v_proj", (kv, hidden)),
                                 ("self_attn.o_proj", (hidden, query)), ("post_attention_layernorm", (hidden,)),
                                 ("mlp.gate_proj", (wide, hidden)), ("mlp.up_proj", (wide, hidden)),
                                 ("mlp.down_proj", (hidden, wide))):
            yield f"model.layers.{layer}.{name}.weight", dimensions
    yield "model.norm.weight", (hidden,)
    if not shape["tie_word_embeddings"]:
        yield "lm_head.weight", (shape["vocab_size"], hidden)


def count(dimensions):
    product = 1
    for dimension in dimensions:
        product *= dimension
    return product


def header(shape):
    """The head of a safetensors file: its length in 8 bytes, then JSON, padded to a multiple of 8 bytes."""
    entries, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, dimensions in tensors(shape):
        end = offset + 2 * count(dimensions)
        entries[name] = {"dtype": "BF16", "shape": list(dimensions), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def write_weights(path, shape, seed, device):
    """Writes the file; returns the number of its parameters."""
    draw = torch.Generator(device).manual_seed(seed)
    # Page-locked, which makes copies from a GPU several times as fast.
    largest = max(count(dimensions) for _, dimensions in tensors(shape))
    host = torch.empty(min(PIECE, largest), dtype=torch.bfloat16, pin_memory=device == "cuda")
    written = 0
    with open(path, "wb") as file:
        file.write(header(shape))
        for _, dimensions in tensors(shape):
            values = torch.empty(count(dimensions), dtype=torch.bfloat16, device=device)
            if len(dimensions) == 1:
                values.fill_(1)
            else:
                values.normal_(0, DEVIATION, generator=draw)
            for piece in values.split(PIECE):
                host[:piece.numel()].copy_(piece)
                file.write((ctypes.c_char * (2 * piece.numel())).from_address(host.data_ptr()))
            written += values.numel()
    return written


def tokenizer_size(tokenizer):
    """One more than the largest token id of the tokenizer's folder."""
    file = json.loads((tokenizer / "tokenizer.json").read_text())
    vocabulary = file["model"]["vocab"]
    ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    return 1 + max([*ids, *(token["id"] for token in file.get("added_tokens", ()))])


def special_ids(tokenizer, vocabulary):
    """Ids of the first, the last and the filling token: those of the tokenizer's folder, else Llama's."""
    llama3 = vocabulary > 128001
    ids = {"bos_token_id": 128000 if llama3 else 1, "eos_token_id": 128001 if llama3 else 2}
    if tokenizer:
        for name in ("config.json", "generation_config.json"):
            if (tokenizer / name).exists():
                found = json.loads((tokenizer / name).read_text())
                ids.update({key: found[key] for key in SPECIAL_IDS if found.get(key) is not None})
    return ids


def write_settings(out, shape, tokenizer):
    ids = special_ids(tokenizer, shape["vocab_size"])
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="bfloat16", hidden_act="silu",
                  rms_norm_eps=1e-5, rope_theta=500000.0, rope_scaling=None, attention_bias=False, mlp_bias=False,
                  attention_dropout=0.0, initializer_range=DEVIATION, use_cache=True, **shape, **ids)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(ids, indent=2) + "\n")
    if tokenizer:
        for name in TOKENIZER_FILES:
            if (tokenizer / name).exists():
                shutil.copyfile(tokenizer / name, out / name)


def main():
    parser = argparse.ArgumentParser(description="Write a Llama of a real shape with random weights")
    parser.add_argument("out", type=pathlib.Path, metavar="OUT", help="the folder to write")
    parser.add_argument("--shape", choices=SHAPES, default="8b")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokenizer", type=pathlib.Path, metavar="DIR", help="a model's folder, for its tokenizer")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    chosen = parser.parse_args()
    if chosen.tokenizer and not (chosen.tokenizer / "tokenizer.json").exists():
        parser.error(f"no tokenizer.json in {chosen.tokenizer}")
    begin = time.monotonic()
    chosen.out.mkdir(parents=True, exist_ok=True)
    shape = dict(SHAPES[chosen.shape])
    if chosen.tokenizer:
        shape["vocab_size"] = max(shape["vocab_size"], tokenizer_size(chosen.tokenizer))
    write_settings(chosen.out, shape, chosen.tokenizer)
    with torch.inference_mode():
        parameters = write_weights(chosen.out / "model.safetensors", shape, chosen.seed, chosen.device)
    print(f"{chosen.out}: {parameters:,} parameters, {2 * parameters / 1e9:.2f} GB, "
          f"{time.monotonic() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
