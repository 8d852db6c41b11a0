#!/usr/bin/env python3
"""Reads a folder of `baton model quantize` with compressed-tensors, and says how far its numbers are from the source's.

    baton model quantize SOURCE FOLDER --weights int4 --portable
    ./read_back.py SOURCE FOLDER      # versions: requirements.txt

Exit 1 if a matrix can't be read, or is further from its source than its precision explains.
"""

import json
import pathlib
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.utils.match import match_name
from safetensors.torch import load_file

LIMITS = {8: 0.02, 4: 0.12}  # error of a matrix relative to its size


def main(source, folder):
    original = {}
    for path in pathlib.Path(source).glob("*.safetensors"):
        original.update(load_file(path))
    stored = load_file(pathlib.Path(folder) / "model.safetensors")
    config = QuantizationConfig.model_validate(
        json.loads((pathlib.Path(folder) / "config.json").read_text())["quantization_config"])
    worst, failed = {}, 0
    for name, tensor in original.items():
        module = name.rpartition(".")[0]
        if tensor.ndim != 2:
            assert torch.equal(stored[name], tensor), name
            continue
        scheme = next(s for s in config.config_groups.values() if any(match_name(module, t) for t in s.targets))
        state = {k.rpartition(".")[2]: v for k, v in stored.items() if k.rpartition(".")[0] == module}
        weight = BaseCompressor.get_value_from_registry(scheme.format).decompress(state, scheme)["weight"]
        error = ((weight.float() - tensor.float()).norm() / tensor.float().norm()).item()
        bits = scheme.weights.num_bits
        worst[bits] = max(worst.get(bits, 0), error)
        failed += error > LIMITS[bits]
    print(", ".join(f"{bits} bits: largest relative error {error:.4f}" for bits, error in sorted(worst.items())))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
