"""The network in plain torch. Module names are those of a Hugging Face Llama, so weights move over by name."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Shape:
    vocabulary: int = 2048
    width: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 64
    hidden: int = 448
    context: int = 2304
    rope_theta: float = 500000.0
    norm_epsilon: float = 1e-5


class RmsNorm(nn.Module):
    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.epsilon)


def rotation(shape: Shape, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, [length, head_width]; the two halves of a head turn together, as in Hugging Face's Llama."""
    half = torch.arange(0, shape.head_width, 2).float() / shape.head_width
    angle = torch.arange(length).float()[:, None] * (shape.rope_theta**-half)[None, :]
    angle = torch.cat((angle, angle), -1)
    return angle.cos(), angle.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention, [rows, heads, length, head_width]. Short rows are twice as fast written out, on a CPU."""
    length, width = q.shape[-2:]
    if length > 512:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    ahead = torch.full((length, length), -1e9, dtype=q.dtype).triu(1)
    return (torch.matmul(q * width**-0.5, k.mT) + ahead).softmax(-1) @ v


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        wide, narrow = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
        self.q_proj = nn.Linear(shape.width, wide, bias=False)
        self.k_proj = nn.Linear(shape.width, narrow, bias=False)
        self.v_proj = nn.Linear(shape.width, narrow, bias=False)
        self.o_proj = nn.Linear(wide, shape.width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        split = lambda y: y.view(rows, length, -1, self.shape.head_width).transpose(1, 2)
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.shape.heads // self.shape.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        y = attend(q, k, v)
        return self.o_proj(y.transpose(1, 2).reshape(rows, length, -1))


class Mlp(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down_proj = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape)
        self.input_layernorm = RmsNorm(shape.width, shape.norm_epsilon)
        self.post_attention_layernorm = RmsNorm(shape.width, shape.norm_epsilon)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    """Token ids [rows, length] -> hidden states [rows, length, width]; `logits` maps those to the vocabulary.

    `positions`, [rows, length], count up from 0 unless given.
    """

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.width, shape.norm_epsilon)
        cos, sin = rotation(shape, shape.context)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02 if "embed" in name else weight.shape[1] ** -0.5)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(weight)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
        x = self.embed_tokens(ids)
        if torch.is_autocast_enabled("cpu"):
            x = x.to(torch.bfloat16)
        if positions is None:
            positions = torch.arange(ids.shape[1])[None]
        cos, sin = self.cos[positions][:, None].to(x.dtype), self.sin[positions][:, None].to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self.embed_tokens.weight)
