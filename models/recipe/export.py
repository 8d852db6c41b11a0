"""Writes a checkpoint as a Hugging Face folder: config.json, model.safetensors (BF16), generation_config.json.

    python export.py --run runs/tiny --out ../baton-tiny
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer

from corpus import chat


def hub_name(name: str) -> str:
    return f"model.{name}"


def config_of(shape: dict, tokenizer: Tokenizer) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
        "vocab_size": shape["vocabulary"], "hidden_size": shape["width"], "intermediate_size": shape["hidden"],
        "num_hidden_layers": shape["layers"], "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"], "head_dim": shape["head_width"], "hidden_act": "silu",
        "max_position_embeddings": shape["context"], "rms_norm_eps": shape["norm_epsilon"],
        "rope_theta": shape["rope_theta"], "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
        "attention_dropout": 0.0, "tie_word_embeddings": True, "use_cache": True, "initializer_range": 0.02,
        "pretraining_tp": 1, "bos_token_id": tokenizer.token_to_id(chat.BEGIN),
        "eos_token_id": tokenizer.token_to_id(chat.END), "pad_token_id": tokenizer.token_to_id(chat.PAD),
    }


def generation_of(tokenizer: Tokenizer) -> dict:
    return {
        "bos_token_id": tokenizer.token_to_id(chat.BEGIN), "eos_token_id": [tokenizer.token_to_id(chat.END)],
        "pad_token_id": tokenizer.token_to_id(chat.PAD), "do_sample": True, "temperature": 0.3, "top_p": 0.95,
        "top_k": 20, "max_new_tokens": 256,
    }


def write_json(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--run", type=pathlib.Path, required=True)
    arguments.add_argument("--out", type=pathlib.Path, required=True)
    args = arguments.parse_args()
    tokenizer = Tokenizer.from_file(str(args.out / "tokenizer.json"))
    state = torch.load(args.run / "checkpoint.pt", weights_only=True, map_location="cpu")
    weights = {hub_name(n): w.to(torch.bfloat16).contiguous() for n, w in state["model"].items()}
    save_file(weights, args.out / "model.safetensors", metadata={"format": "pt"})
    write_json(args.out / "config.json", config_of(state["shape"], tokenizer))
    write_json(args.out / "generation_config.json", generation_of(tokenizer))
    print(f"step {state['step']}: {(args.out / 'model.safetensors').stat().st_size} bytes")


if __name__ == "__main__":
    main()
