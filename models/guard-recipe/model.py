"""The network in plain JAX, and its folder. Names of weights are those of a Hugging Face Llama; a weight is [out, in]."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import prompt


@dataclasses.dataclass(frozen=True)
class Shape:
    vocabulary: int = 1024
    width: int = 128
    layers: int = 4
    heads: int = 2
    kv_heads: int = 1
    head_width: int = 64
    hidden: int = 320
    context: int = 1024
    rope_theta: float = 10000.0
    norm_epsilon: float = 1e-5


def start(shape: Shape, seed: int) -> dict[str, jnp.ndarray]:
    rng = np.random.default_rng(seed)
    normal = lambda out, into, scale=1.0: rng.normal(0, scale * into**-0.5, (out, into)).astype(np.float32)
    weights = {"model.embed_tokens.weight": rng.normal(0, 0.05, (shape.vocabulary, shape.width)).astype(np.float32),
               "model.norm.weight": np.ones(shape.width, np.float32)}
    q, kv = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    for i in range(shape.layers):
        layer = f"model.layers.{i}."
        weights |= {layer + "input_layernorm.weight": np.ones(shape.width, np.float32),
                    layer + "post_attention_layernorm.weight": np.ones(shape.width, np.float32),
                    layer + "self_attn.q_proj.weight": normal(q, shape.width), layer + "self_attn.k_proj.weight": normal(kv, shape.width),
                    layer + "self_attn.v_proj.weight": normal(kv, shape.width), layer + "self_attn.o_proj.weight": normal(shape.width, q, 0.3),
                    layer + "mlp.gate_proj.weight": normal(shape.hidden, shape.width), layer + "mlp.up_proj.weight": normal(shape.hidden, shape.width),
                    layer + "mlp.down_proj.weight": normal(shape.width, shape.hidden, 0.3)}
    return {name: jnp.asarray(weight) for name, weight in weights.items()}


def forward(shape: Shape, weights: dict, ids: jnp.ndarray) -> jnp.ndarray:
    """[rows, length] to [rows, length, width], normalised; logits are that times the embedding's transpose."""
    rows, length = ids.shape
    norm = lambda x, w: x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + shape.norm_epsilon) * w
    half = shape.rope_theta ** -(jnp.arange(0, shape.head_width, 2) / shape.head_width)
    angle = jnp.arange(length)[:, None] * half[None, :]
    angle = jnp.concatenate((angle, angle), -1)
    cos, sin = jnp.cos(angle), jnp.sin(angle)

    def turned(x):  # the two halves of a head turn together
        a, b = jnp.split(x, 2, -1)
        return x * cos + jnp.concatenate((-b, a), -1) * sin

    ahead = jnp.triu(jnp.full((length, length), -1e9), 1)
    x = weights["model.embed_tokens.weight"][ids]
    for i in range(shape.layers):
        w = lambda name: weights[f"model.layers.{i}.{name}.weight"]
        y = norm(x, w("input_layernorm"))
        split = lambda z: z.reshape(rows, length, -1, shape.head_width).transpose(0, 2, 1, 3)
        q, k, v = turned(split(y @ w("self_attn.q_proj").T)), turned(split(y @ w("self_attn.k_proj").T)), split(y @ w("self_attn.v_proj").T)
        k, v = (jnp.repeat(z, shape.heads // shape.kv_heads, 1) for z in (k, v))
        y = jax.nn.softmax(q @ k.transpose(0, 1, 3, 2) * shape.head_width**-0.5 + ahead, -1) @ v
        x = x + y.transpose(0, 2, 1, 3).reshape(rows, length, -1) @ w("self_attn.o_proj").T
        y = norm(x, w("post_attention_layernorm"))
        x = x + (jax.nn.silu(y @ w("mlp.gate_proj").T) * (y @ w("mlp.up_proj").T)) @ w("mlp.down_proj").T
    return norm(x, weights["model.norm.weight"])


def load(folder: pathlib.Path) -> dict[str, jnp.ndarray]:
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        return {name: jnp.asarray(file.get_tensor(name).astype(np.float32)) for name in file.keys()}


def save(shape: Shape, weights: dict, tokenizer, out: pathlib.Path) -> None:
    """Writes model.safetensors (BF16), config.json and generation_config.json."""
    save_file({name: np.asarray(weight).astype(ml_dtypes.bfloat16) for name, weight in weights.items()}, out / "model.safetensors", metadata={"format": "pt"})
    ids = {"bos_token_id": tokenizer.token_to_id(prompt.BEGIN), "eos_token_id": tokenizer.token_to_id(prompt.END), "pad_token_id": tokenizer.token_to_id(prompt.PAD)}
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "vocab_size": shape.vocabulary,
              "hidden_size": shape.width, "intermediate_size": shape.hidden, "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
              "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_width, "hidden_act": "silu", "max_position_embeddings": shape.context,
              "rms_norm_eps": shape.norm_epsilon, "rope_theta": shape.rope_theta, "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
              "tie_word_embeddings": True, **ids}
    generation = {**ids, "do_sample": False, "max_new_tokens": 16}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
