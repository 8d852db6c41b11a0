#!/usr/bin/env python3
"""Writes a GGUF file of a model with random weights, which Baton and llama.cpp both load: for speed, not for sense.

    build/peers/venv/bin/python3 tests/bench/peers/make_gguf.py [--size 390m|1b|a3b] [--format BF16|F16|Q8_0|Q4_0] FILE

390m has the shape of the benchmarks' own synthetic model, a Llama; 1b that of TinyLlama; a3b is two layers of Qwen3-30B-A3B, with a smaller
vocabulary. Baton reads no mixtures from GGUF files: --folder writes a3b for it, as a Hugging Face folder in BF16, in FILE's place. The
tokenizer is that of a golden file, filled up with names that no text has. The same size has the same weights in every format. Q4_0 keeps the embedding, which is the output matrix too, as
Q8_0: llama-quantize gives it more bits than the rest, and Baton's int4 keeps it as int8.
"""
import argparse
import json
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

TOKENIZER = pathlib.Path(__file__).resolve().parents[2] / "golden" / "gguf" / "data" / "tokenizers" / "llama-bpe.gguf"
SIZES = {
    "390m": {"hidden": 1280, "wide": 3520, "layers": 20, "heads": 20, "kv_heads": 4, "head": 64, "vocabulary": 32768},
    "1b": {"hidden": 2048, "wide": 5632, "layers": 22, "heads": 32, "kv_heads": 4, "head": 64, "vocabulary": 32000},
    "a3b": {"hidden": 2048, "wide": 768, "layers": 2, "heads": 32, "kv_heads": 4, "head": 128, "vocabulary": 16384, "experts": 128, "used": 8},
}


def add_tokenizer(writer, vocabulary):
    fields = gguf.GGUFReader(TOKENIZER).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    tokens += [f"<unused-{i}>" for i in range(vocabulary - len(tokens))]
    types += [gguf.TokenType.UNUSED] * (vocabulary - len(types))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(fields["tokenizer.ggml.merges"].contents())
    writer.add_bos_token_id(fields["tokenizer.ggml.bos_token_id"].contents())
    writer.add_eos_token_id(fields["tokenizer.ggml.eos_token_id"].contents())
    writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}")


def tensors(shape):
    """(name in a GGUF file, name in a folder, shape) of each tensor; of experts one of each, in order."""
    hidden, wide, head = shape["hidden"], shape["wide"], shape["head"]
    q, kv = shape["heads"] * head, shape["kv_heads"] * head
    yield "token_embd", "model.embed_tokens", (shape["vocabulary"], hidden)
    yield "output_norm", "model.norm", (hidden,)
    for layer in range(shape["layers"]):
        block, at = f"blk.{layer}.", f"model.layers.{layer}."
        yield block + "attn_norm", at + "input_layernorm", (hidden,)
        yield block + "ffn_norm", at + "post_attention_layernorm", (hidden,)
        for name, long, size in (("attn_q", "q_proj", (q, hidden)), ("attn_k", "k_proj", (kv, hidden)), ("attn_v", "v_proj", (kv, hidden)), ("attn_output", "o_proj", (hidden, q))):
            yield block + name, f"{at}self_attn.{long}", size
        mlp = (("gate", (wide, hidden)), ("up", (wide, hidden)), ("down", (hidden, wide)))
        if "experts" not in shape:
            for name, size in mlp:
                yield f"{block}ffn_{name}", f"{at}mlp.{name}_proj", size
            continue
        yield block + "attn_q_norm", at + "self_attn.q_norm", (head,)
        yield block + "attn_k_norm", at + "self_attn.k_norm", (head,)
        yield block + "ffn_gate_inp", at + "mlp.gate", (shape["experts"], hidden)
        for name, size in mlp:
            for expert in range(shape["experts"]):
                yield f"{block}ffn_{name}_exps", f"{at}mlp.experts.{expert}.{name}_proj", size


def values_of(rng, size):
    if len(size) == 1:
        return np.ones(size, dtype=np.float32)
    return rng.standard_normal(size, dtype=np.float32) * np.float32(0.02)


def write_gguf(shape, options):
    mixture = "experts" in shape
    writer = gguf.GGUFWriter(options.file, "qwen3moe" if mixture else "llama", use_temp_file=True)
    writer.add_name(f"random-{options.size}")
    writer.add_block_count(shape["layers"])
    writer.add_context_length(4096)
    writer.add_embedding_length(shape["hidden"])
    writer.add_feed_forward_length(shape["wide"])
    writer.add_head_count(shape["heads"])
    writer.add_head_count_kv(shape["kv_heads"])
    writer.add_key_length(shape["head"])
    writer.add_value_length(shape["head"])
    writer.add_rope_dimension_count(shape["head"])
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape["vocabulary"])
    if mixture:
        writer.add_expert_count(shape["experts"])
        writer.add_expert_used_count(shape["used"])
        writer.add_expert_feed_forward_length(shape["wide"])
    writer.add_file_type({"BF16": 32, "F16": 1, "Q8_0": 7, "Q4_0": 2}[options.format])
    add_tokenizer(writer, shape["vocabulary"])
    rng = np.random.default_rng(1)
    together = []  # experts of one tensor
    for name, _, size in tensors(shape):
        kind = options.format
        if len(size) == 1 or name.endswith("ffn_gate_inp"):
            kind = "F32"
        elif name == "token_embd" and kind == "Q4_0":
            kind = "Q8_0"
        data = gguf.quants.quantize(values_of(rng, size), Type[kind])
        if name.endswith("_exps"):
            together.append(data)
            if len(together) < shape["experts"]:
                continue
            data, together = np.stack(together), []
        writer.add_tensor(name + ".weight", data, raw_dtype=Type[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_folder(shape, folder):
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": shape["vocabulary"], "hidden_size": shape["hidden"],
        "intermediate_size": shape["wide"], "moe_intermediate_size": shape["wide"], "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"], "num_key_value_heads": shape["kv_heads"], "head_dim": shape["head"], "num_experts": shape["experts"],
        "num_experts_per_tok": shape["used"], "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "hidden_act": "silu",
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    header, at = {}, 0
    for _, name, size in tensors(shape):
        bytes_ = 2 * int(np.prod(size))
        header[name + ".weight"] = {"dtype": "BF16", "shape": list(size), "data_offsets": [at, at + bytes_]}
        at += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, size in tensors(shape):
            file.write(gguf.quants.quantize(values_of(rng, size), Type.BF16).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="390m")
    parser.add_argument("--format", choices=("BF16", "F16", "Q8_0", "Q4_0"), default="BF16", help="of matrices; norms are F32")
    parser.add_argument("--folder", action="store_true", help="of a3b: FILE becomes a folder")
    parser.add_argument("file")
    options = parser.parse_args()
    shape = SIZES[options.size]
    if options.folder:
        write_folder(shape, pathlib.Path(options.file))
    else:
        write_gguf(shape, options)


if __name__ == "__main__":
    main()
