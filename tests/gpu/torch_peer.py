#!/usr/bin/env python3
"""The peer of gpu_bench: the same 8B-shaped model in plain PyTorch (SDPA, CUDA graphs), on the same GPU.

Prints rows in the form of gpu_bench's table: decode steps at several batch sizes over 1,024 keys, replayed as CUDA graphs,
and prefills. Weights are random; shapes are those of Llama 3.1 8B. KV is contiguous, which favours PyTorch: no pages.
"""

import time

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, WIDE, VOCABULARY, HEADS, KV_HEADS, DIM = 32, 4096, 14336, 128256, 32, 8, 128
DEVICE = "cuda"


def weight(rows, cols):
    return torch.randn(rows, cols, device=DEVICE, dtype=torch.bfloat16) * 0.02


class Model:
    def __init__(self):
        self.embedding = weight(VOCABULARY, HIDDEN)
        self.head = weight(VOCABULARY, HIDDEN)
        self.norm = torch.ones(HIDDEN, device=DEVICE, dtype=torch.bfloat16)
        self.layers = [
            (weight((HEADS + 2 * KV_HEADS) * DIM, HIDDEN), weight(HIDDEN, HEADS * DIM), weight(2 * WIDE, HIDDEN),
             weight(HIDDEN, WIDE)) for _ in range(LAYERS)
        ]
        # Read by a step: the layers and the head, but a row of the embedding.
        self.weight_bytes = 2 * (VOCABULARY * HIDDEN + sum(w.numel() for layer in self.layers for w in layer))
        self.cos = torch.rand(16384, DIM, device=DEVICE, dtype=torch.bfloat16)
        self.sin = torch.rand(16384, DIM, device=DEVICE, dtype=torch.bfloat16)

    def rotate(self, x, cos, sin):
        half = DIM // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def step(self, tokens, caches, past):
        """tokens [batch, rows]; caches: per layer (keys, values) [batch, kv_heads, past + rows, dim]."""
        batch, rows = tokens.shape
        cos, sin = self.cos[past:past + rows], self.sin[past:past + rows]
        x = F.embedding(tokens, self.embedding)
        for (qkv, output, gate_up, down), (keys, values) in zip(self.layers, caches):
            h = F.rms_norm(x, (HIDDEN,), self.norm)
            q, k, v = F.linear(h, qkv).split((HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM), -1)
            q = q.view(batch, rows, HEADS, DIM).transpose(1, 2)
            k = k.view(batch, rows, KV_HEADS, DIM).transpose(1, 2)
            keys[:, :, past:past + rows] = self.rotate(k, cos, sin)
            values[:, :, past:past + rows] = v.view(batch, rows, KV_HEADS, DIM).transpose(1, 2)
            attended = F.scaled_dot_product_attention(self.rotate(q, cos, sin), keys, values, is_causal=rows > 1,
                                                      enable_gqa=True)
            x = x + F.linear(attended.transpose(1, 2).reshape(batch, rows, HEADS * DIM), output)
            gate, up = F.linear(F.rms_norm(x, (HIDDEN,), self.norm), gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(F.rms_norm(x[:, -1], (HIDDEN,), self.norm), self.head).float()


def seconds(run, repetitions):
    for _ in range(3):
        run()
    best = float("inf")
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(repetitions):
            run()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / repetitions)
    return best


def caches(batch, tokens):
    shape = (batch, KV_HEADS, tokens, DIM)
    return [tuple(torch.randn(shape, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)) for _ in range(LAYERS)]


@torch.inference_mode()
def main():
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}: the same shapes, SDPA, decode as CUDA graphs\n")
    print("| what | PyTorch |\n|---|---|")
    model = Model()
    for batch in (1, 8, 64, 256):
        past = 1024
        kv = caches(batch, past + 1)
        tokens = torch.randint(VOCABULARY, (batch, 1), device=DEVICE)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())  # which makes the tokens
        with torch.cuda.stream(stream):
            for _ in range(3):
                model.step(tokens, kv, past)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            model.step(tokens, kv, past)
        took = seconds(graph.replay, 20)
        moved = model.weight_bytes + batch * past * LAYERS * 2 * KV_HEADS * DIM * 2
        print(f"| 8B decode, batch {batch}, 1,024 keys | {took * 1e3:.3f} ms, {moved / took / 1e9:.0f} GB/s |", flush=True)
        del graph, kv
        torch.cuda.empty_cache()
    for batch, rows in ((1, 1024), (1, 4096), (4, 2048), (1, 8192)):
        kv = caches(batch, rows)
        tokens = torch.randint(VOCABULARY, (batch, rows), device=DEVICE)
        took = seconds(lambda: model.step(tokens, kv, 0), 3)
        print(f"| 8B prefill, {batch} x {rows} | {batch * rows / took:.0f} tok/s |", flush=True)
        del kv


if __name__ == "__main__":
    main()
