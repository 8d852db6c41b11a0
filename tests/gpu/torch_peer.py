#!/usr/bin/env python3
"""The peer of gpu_bench: the same work in plain PyTorch (SDPA, cuBLAS, CUDA graphs), on the same GPU.

    torch_peer.py [--only limits|decode|prefill|attention|products ...] [--quick] [--take median|best] [--rehearse]

Rows have the form of gpu_bench's: what, its figure, the limit measured in the same run, their ratio. Bytes and
operations are counted as in figures.h. Shapes are those of Llama 3.1 8B in bf16, all numbers are random. KV is
contiguous, which favours PyTorch: no pages. Decode steps, attention and products are replayed as CUDA graphs.
A row that fails says why, and the rest goes on.
"""

import argparse
import contextlib
import functools
import gc
import itertools
import statistics
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

PARTS = ("limits", "decode", "prefill", "attention", "products")
FP8 = torch.float8_e4m3fn
BACKENDS = {"plain SDPA": None, "cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


@dataclass
class Shape:
    """Sizes of the model and of the measurements, and their device."""
    device: str = "cuda"
    layers: int = 32
    hidden: int = 4096
    wide: int = 14336
    vocabulary: int = 128256
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    longest: int = 8192  # tokens of a prefill
    keys: int = 1024  # of each row of a decode step
    square: int = 8192  # side of the product that is the limit
    copied: int = 2 << 30  # bytes of the copy that is the limit
    cold: int = 256 << 20  # bytes: so much, used by turns, stays in no cache (an H100's L2 has 50 MB)

    @property
    def qkv(self):
        return (self.heads + 2 * self.kv_heads) * self.dim

    def kv_bytes(self, sequences, tokens):
        """Bytes of one layer's keys and values."""
        return sequences * tokens * 2 * self.kv_heads * self.dim * 2

    def attention_operations(self, rows):
        """Operations of one layer's causal attention: row i meets i + 1 keys."""
        return 4 * self.heads * self.dim * (rows * (rows + 1) // 2)

    def copies(self, size):
        """How many buffers of so many bytes, used by turns, no cache holds."""
        return max(1, -(-self.cold // size))

    def normal(self, *dimensions, scale=1.0):
        return torch.empty(dimensions, dtype=torch.bfloat16, device=self.device).normal_(0, scale)

    def weight(self, rows, cols):
        return self.normal(rows, cols, scale=0.02)

    def tokens(self, batch, rows):
        return torch.randint(self.vocabulary, (batch, rows), device=self.device)

    def kv(self, sequences, tokens):
        """A layer's (keys, values)."""
        return tuple(self.normal(sequences, self.kv_heads, tokens, self.dim) for _ in range(2))


REHEARSED = Shape(device="cpu", layers=2, hidden=64, wide=128, vocabulary=256, heads=4, kv_heads=1, dim=16, longest=32,
                  keys=16, square=64, copied=1 << 16, cold=1 << 16)


class Model:
    def __init__(self, shape):
        self.shape = s = shape
        self.repeat_heads = False  # for backends that refuse grouped queries
        self.embedding = s.weight(s.vocabulary, s.hidden)
        self.head = s.weight(s.vocabulary, s.hidden)
        self.norm = torch.ones(s.hidden, dtype=torch.bfloat16, device=s.device)
        self.layers = [(s.weight(s.qkv, s.hidden), s.weight(s.hidden, s.heads * s.dim),
                        s.weight(2 * s.wide, s.hidden), s.weight(s.hidden, s.wide)) for _ in range(s.layers)]
        # The first multiply every row, the last one rows whose logits are wanted.
        self.layers_parameters = sum(w.numel() for layer in self.layers for w in layer)
        self.head_parameters = self.head.numel()
        self.cos, self.sin = torch.rand(2, s.longest, s.dim, dtype=torch.bfloat16, device=s.device)

    def caches(self, batch, tokens):
        """Per layer (keys, values) [batch, kv_heads, tokens, dim]."""
        return [self.shape.kv(batch, tokens) for _ in range(self.shape.layers)]

    def rotate(self, x, cos, sin):
        half = self.shape.dim // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    def attend(self, q, keys, values):
        if self.repeat_heads:
            group = self.shape.heads // self.shape.kv_heads
            keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        return F.scaled_dot_product_attention(q, keys, values, is_causal=q.shape[2] > 1,
                                              enable_gqa=not self.repeat_heads)

    def step(self, tokens, caches, past):
        """tokens [batch, rows]; caches of past + rows tokens. Logits [batch, vocabulary] of each last row."""
        s = self.shape
        batch, rows = tokens.shape
        cos, sin = self.cos[past:past + rows], self.sin[past:past + rows]
        x = F.embedding(tokens, self.embedding)
        for (qkv, output, gate_up, down), (keys, values) in zip(self.layers, caches):
            h = F.rms_norm(x, (s.hidden,), self.norm)
            q, k, v = F.linear(h, qkv).split((s.heads * s.dim, s.kv_heads * s.dim, s.kv_heads * s.dim), -1)
            q = q.view(batch, rows, s.heads, s.dim).transpose(1, 2)
            k = k.view(batch, rows, s.kv_heads, s.dim).transpose(1, 2)
            keys[:, :, past:past + rows] = self.rotate(k, cos, sin)
            values[:, :, past:past + rows] = v.view(batch, rows, s.kv_heads, s.dim).transpose(1, 2)
            attended = self.attend(self.rotate(q, cos, sin), keys, values)
            x = x + F.linear(attended.transpose(1, 2).reshape(batch, rows, s.heads * s.dim), output)
            gate, up = F.linear(F.rms_norm(x, (s.hidden,), self.norm), gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(F.rms_norm(x[:, -1], (s.hidden,), self.norm), self.head).float()


def first_line(error):
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}".replace("|", "/")[:160]


def only(backend):
    """SDPA by this backend alone; None: as PyTorch chooses."""
    return sdpa_kernel(backend) if backend else contextlib.nullcontext()


class Bench:
    def __init__(self, shape, quick, take):
        self.shape, self.device = shape, shape.device
        self.group_seconds = 0.0 if shape.device == "cpu" else 0.02 if quick else 0.1
        self.take = {"median": statistics.median, "best": min}[take]
        self.limits = {}  # unit: (limit, its name)

    def row(self, what, measure):
        """Prints a row; measure() gives (what to add to its name, figure, unit)."""
        try:
            more, value, unit = measure()
            limit, name = self.limits.get(unit, (float("nan"), "not measured"))
            print(f"| {what + more:<60} | {value:10.2f} {unit:<8} | {limit:10.2f} {name:<18} "
                  f"| {100 * value / limit:5.1f}% |", flush=True)
        except Exception as error:  # pylint: disable=broad-except
            print(f"| {what:<60} | not measured: {first_line(error)} | | |", flush=True)
        self.clean()

    def clean(self):
        """Frees what a row took, also one that failed while a graph was captured."""
        gc.collect()
        if self.device == "cuda":
            with contextlib.suppress(Exception):
                torch.cuda.set_stream(torch.cuda.default_stream())
                torch.cuda.synchronize()
                torch.cuda.empty_cache()

    def elapsed(self, run, repetitions):
        if self.device == "cpu":
            begin = time.perf_counter()
            for _ in range(repetitions):
                run()
            return (time.perf_counter() - begin) / repetitions
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(repetitions):
            run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3 / repetitions

    def seconds(self, run):
        """Seconds of one run(): of five groups of repetitions, after a warm-up."""
        self.elapsed(run, 3)
        repetitions = min(max(int(self.group_seconds / self.elapsed(run, 3)), 1), 10000)
        return self.take([self.elapsed(run, repetitions) for _ in range(5)])

    def replayed_seconds(self, runs):
        """Seconds of one of the runs on average, all of them in turn as one CUDA graph."""
        def all_runs():
            for run in runs:
                run()
        if self.device == "cpu":
            return self.seconds(all_runs) / len(runs)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())  # which makes the inputs
        with torch.cuda.stream(stream):
            for run in runs[:3]:
                run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            all_runs()
        return self.seconds(graph.replay) / len(runs)

    @functools.cached_property
    def model(self):
        return Model(self.shape)

    def measure_limits(self):
        def copy():
            a = torch.randint(1 << 30, (self.shape.copied // 4,), dtype=torch.int32, device=self.device)
            b = torch.empty_like(a)
            rate = 2 * a.nbytes / self.seconds(lambda: b.copy_(a)) / 1e9
            self.limits["GB/s"] = rate, "copy"
            return "", rate, "GB/s"

        def product():
            n = self.shape.square
            w, x, y = self.shape.weight(n, n), self.shape.normal(n, n), self.shape.normal(n, n)
            rate = 2 * n**3 / self.seconds(lambda: torch.mm(x, w.t(), out=y)) / 1e12
            self.limits["TFLOP/s"] = rate, "cuBLAS"
            return "", rate, "TFLOP/s"

        self.row("copy on the device (read + write)", copy)
        self.row(f"cuBLAS bf16, {self.shape.square}^3", product)

    def measure_decode(self):
        past = self.shape.keys

        def measure(batch):
            caches = self.model.caches(batch, past + 1)
            tokens = self.shape.tokens(batch, 1)
            took = self.replayed_seconds([lambda: self.model.step(tokens, caches, past)])
            read = 2 * (self.model.layers_parameters + self.model.head_parameters) + self.shape.layers * \
                self.shape.kv_bytes(batch, past)
            return f"{self.chosen(batch, 1, past + 1)}: {took * 1e3:.3f} ms", read / took / 1e9, "GB/s"

        for batch in (1, 8, 16, 64, 256):
            self.row(f"8B decode, batch {batch}, {past:,} keys", functools.partial(measure, batch))

    def measure_prefill(self):
        def measure(sequences, rows, backend):
            model = self.model
            caches = model.caches(sequences, rows)
            tokens = self.shape.tokens(sequences, rows)
            model.repeat_heads, more = False, "" if backend else self.chosen(sequences, rows, rows)
            with only(backend):
                try:
                    model.step(tokens, caches, 0)
                except RuntimeError:  # torch.OutOfMemoryError too: it is raised again below
                    model.repeat_heads, more = True, " (KV heads repeated, in the time)"
                took = self.seconds(lambda: model.step(tokens, caches, 0))
            operations = 2 * sequences * (rows * model.layers_parameters + model.head_parameters) + \
                sequences * self.shape.layers * self.shape.attention_operations(rows)
            return f"{more}: {sequences * rows / took:.0f} tok/s", operations / took / 1e12, "TFLOP/s"

        longest = self.shape.longest
        for name in ("plain SDPA", "cuDNN"):
            for sequences, rows in ((1, longest // 8), (1, longest // 2), (4, longest // 4), (1, longest)):
                self.row(f"8B prefill, {sequences} x {rows}, {name}",
                         functools.partial(measure, sequences, rows, BACKENDS[name]))

    def attention(self, sequences, rows, keys, backend):
        """Seconds of one layer's attention, the KV of several by turns, and how queries met their KV heads."""
        s = self.shape
        group = s.heads // s.kv_heads
        buffers = [s.kv(sequences, keys) for _ in range(max(2, s.copies(s.kv_bytes(sequences, keys))))]
        q = s.normal(sequences, s.heads, rows, s.dim)
        attend = functools.partial(F.scaled_dot_product_attention, is_causal=rows > 1)
        forms = [("", lambda: (functools.partial(attend, enable_gqa=True), q, buffers))]
        if rows == 1:  # the queries of a KV head as so many rows: the same attention, and no KV twice
            forms.append((", queries of a KV head as rows",
                          lambda: (attend, q.view(sequences, s.kv_heads, group, s.dim), buffers)))
        forms.append((", KV heads repeated",
                      lambda: (attend, q, [tuple(kv.repeat_interleave(group, 1) for kv in pair) for pair in buffers])))
        refusal = None
        for name, form in forms:
            try:
                with only(backend):
                    call, queries, pairs = form()
                    return self.replayed_seconds([functools.partial(call, queries, *pair) for pair in pairs]), name
            except RuntimeError as error:
                refusal = refusal or error.with_traceback(None)
            self.clean()
        raise refusal

    def chosen(self, sequences, rows, keys):
        """For a row's name: the backend that PyTorch chooses by itself, if it tells."""
        s = self.shape
        with contextlib.suppress(Exception):
            choice = torch._fused_sdp_choice(s.normal(sequences, s.heads, rows, s.dim), *s.kv(sequences, keys),
                                             is_causal=rows > 1, enable_gqa=True)
            return f" ({SDPBackend(choice).name.split('_', maxsplit=1)[0].lower()})"
        return ""

    def measure_attention(self):
        def measure(sequences, rows, keys, backend):
            took, more = self.attention(sequences, rows, keys, backend)
            if backend is None:
                more = self.chosen(sequences, rows, keys) + more
            more += f": {took * 1e6:.1f} us"
            if rows > 1:
                return more, sequences * self.shape.attention_operations(rows) / took / 1e12, "TFLOP/s"
            return more, self.shape.kv_bytes(sequences, keys) / took / 1e9, "GB/s"

        longest, some = self.shape.longest, self.shape.keys
        for (sequences, rows), (name, backend) in itertools.product(
                ((1, longest // 4), (1, longest), (4, longest // 4)), BACKENDS.items()):
            self.row(f"prefill attention, {sequences} x {rows}, KV bf16, {name}",
                     functools.partial(measure, sequences, rows, rows, backend))
        # The last three are gpu_bench's.
        for (batch, keys), (name, backend) in itertools.product(
                ((1, some), (16, some), (64, some), (256, some), (16, 8 * some), (1, 8 * some), (16, 4 * some),
                 (64, 2 * some)), BACKENDS.items()):
            self.row(f"decode attention, {batch} x {keys} keys, KV bf16, {name}",
                     functools.partial(measure, batch, 1, keys, backend))

    def measure_products(self):
        s = self.shape

        def bf16(features, depth, rows):
            x = s.normal(rows, depth)
            weights = [s.weight(features, depth) for _ in range(s.copies(2 * features * depth))]
            return self.replayed_seconds([functools.partial(F.linear, x, w) for w in weights]), ""

        def fp8(features, depth, rows):
            x = s.normal(rows, depth).to(FP8)
            weights = [s.normal(features, depth).to(FP8).t() for _ in range(s.copies(features * depth))]

            def multiply(w, a, b):
                return torch._scaled_mm(x, w, scale_a=a, scale_b=b, out_dtype=torch.bfloat16, use_fast_accum=True)

            def scale(*dimensions):
                return torch.full(dimensions, 0.1, device=s.device)

            refusal = None
            for name, a, b in ((", a scale a row", scale(rows, 1), scale(1, features)),
                               (", one scale", scale(), scale())):
                try:
                    return self.replayed_seconds([functools.partial(multiply, w, a, b) for w in weights]), name
                except RuntimeError as error:
                    refusal = refusal or error.with_traceback(None)
                self.clean()
            raise refusal

        def measure(product, bytes_each, features, depth, rows):
            took, more = product(features, depth, rows)
            more += f": {took * 1e6:.1f} us"
            if rows > 64:
                return more, 2 * features * depth * rows / took / 1e12, "TFLOP/s"
            return more, bytes_each * features * depth / took / 1e9, "GB/s"

        for kind, product, bytes_each in (("bf16", bf16, 2), ("FP8", fp8, 1)):
            for name, features, depth in (("qkv", s.qkv, s.hidden), ("output", s.hidden, s.heads * s.dim),
                                          ("gate and up", 2 * s.wide, s.hidden), ("down", s.hidden, s.wide),
                                          ("head", s.vocabulary, s.hidden)):
                for rows in (1, 16, 64, 2048):
                    self.row(f"product, {name}, {rows} rows, {kind}",
                             functools.partial(measure, product, bytes_each, features, depth, rows))

    @torch.inference_mode()
    def run(self, parts):
        """The limits are measured in every run: ratios are of one run."""
        print(f"| {'what':<60} | {'measured':<19} | {'limit':<29} | ratio  |\n|---|---|---|---|", flush=True)
        self.measure_limits()
        for part in PARTS[1:]:
            if part not in parts:
                continue
            try:
                getattr(self, f"measure_{part}")()
            except Exception as error:  # pylint: disable=broad-except
                print(f"| {part} | not measured: {first_line(error)} | | |", flush=True)
            if part not in ("decode", "prefill"):
                continue
            if not (part == "decode" and "prefill" in parts):
                self.__dict__.pop("model", None)
                self.clean()


def main():
    parser = argparse.ArgumentParser(description="What gpu_bench measures, in PyTorch")
    parser.add_argument("--only", nargs="+", default=PARTS, metavar="PART",
                        help=f"some of {', '.join(PARTS)}, with blanks or commas between; limits come with all")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--take", choices=("median", "best"), default="median", help="of five groups of repetitions")
    parser.add_argument("--rehearse", action="store_true", help="tiny shapes on the CPU: every row once, no figures")
    chosen = parser.parse_args()
    parts = [part for listed in chosen.only for part in listed.split(",") if part]
    if unknown := set(parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    torch.manual_seed(7)
    gpu = "rehearsed on the CPU" if chosen.rehearse else torch.cuda.get_device_name()
    print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, {gpu}; "
          f"{chosen.take} of five\n", flush=True)
    Bench(REHEARSED if chosen.rehearse else Shape(), chosen.quick, chosen.take).run(parts)
    if not chosen.rehearse:
        print(f"\nPyTorch's peak memory: {torch.cuda.max_memory_reserved() / 2**30:.1f} GiB", flush=True)


if __name__ == "__main__":
    main()
