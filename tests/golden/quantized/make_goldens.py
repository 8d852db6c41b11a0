#!/usr/bin/env python3
"""Makes the golden quantized matrices: random weights as public tools store them, and the numbers that those tools read back.

    pip install torch safetensors numpy compressed-tensors       # versions: requirements.txt
    pip download --no-deps --no-binary :all: gptqmodel autoawq   # and unpack both
    ./make_goldens.py --gptqmodel GPTQMODEL_FOLDER --autoawq AUTOAWQ_FOLDER

Each case gets config.json (a quantization_config alone), model.safetensors with the tensors of some matrices, and
expected.safetensors with their numbers in float32: by compressed-tensors' compressors, by GPTQModel's dequantize_weight
and its conversion of the first format, and by AutoAWQ's dequantize_gemm. Those two packages need a GPU to be imported, so
their functions are taken out of their sources. Scales are widened to float32 first, which loses nothing.
"""

import argparse
import ast
import json
import pathlib
import shutil
import types

import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer import FP8BlockDequantizer
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import save_file

DATA = pathlib.Path(__file__).parent / "data"
SHAPES = {"a": (24, 64), "b": (40, 96)}


def weights(seed, shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 0.05


def save(case, config, tensors, expected):
    folder = DATA / case
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"quantization_config": config}, indent=1) + "\n")
    save_file({k: v.contiguous() for k, v in tensors.items()}, folder / "model.safetensors")
    save_file({k: v.float().contiguous() for k, v in expected.items()}, folder / "expected.safetensors")


def compressed(case, name, args, scale_dtype=torch.bfloat16, activations=None):
    """One of compressed-tensors' formats, through its compressor and back."""
    args = QuantizationArgs(**args)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    compressor = BaseCompressor.get_value_from_registry(name)
    tensors, expected = {}, {}
    for i, (matrix, shape) in enumerate(SHAPES.items()):
        w = weights(10 + i, shape)
        groups = args.group_size or shape[1]
        if args.strategy == "tensor":
            low, high = w.min().reshape(1), w.max().reshape(1)
        elif args.strategy == "block":
            rows, cols = args.block_structure
            blocks = [[w[r:r + rows, c:c + cols] for c in range(0, shape[1], cols)] for r in range(0, shape[0], rows)]
            low = torch.tensor([[b.min() for b in row] for row in blocks])
            high = torch.tensor([[b.max() for b in row] for row in blocks])
        else:
            cut = w.reshape(shape[0], -1, groups)
            low, high = cut.amin(-1), cut.amax(-1)
        scale, zero = calculate_qparams(low, high, args)
        scale = scale.to(scale_dtype)
        state = {"weight": w, "weight_scale": scale.float()}
        if not args.symmetric:
            state["weight_zero_point"] = zero.to(torch.int8)
        packed = compressor.compress(state, scheme)
        back = compressor.decompress(packed, scheme)["weight"]
        packed["weight_scale"] = scale
        tensors.update({f"{matrix}.{k}": v for k, v in packed.items()})
        expected[matrix] = back
    group = {"targets": ["Linear"], "weights": json.loads(args.model_dump_json(exclude_none=True)), "format": name}
    if activations:
        group["input_activations"] = activations
    save(case, {"quant_method": "compressed-tensors", "format": name, "quantization_status": "compressed",
                "config_groups": {"group_0": group}, "ignore": ["lm_head"]}, tensors, expected)


def pack(fields, bits):
    """[n, m] unsigned -> [ceil(n / per word), m] int32, the lowest bits first."""
    per = 32 // bits
    fields = np.pad(fields, ((0, -len(fields) % per), (0, 0)))
    words = np.zeros((len(fields) // per, fields.shape[1]), np.uint32)
    for i in range(per):
        words |= fields[i::per].astype(np.uint32) << np.uint32(bits * i)
    return torch.from_numpy(words.view(np.int32))


def functions_of(path, names):
    """Functions (or methods) of a source file that can't be imported, by name."""
    tree, scope = ast.parse(path.read_text()), {"t": torch, "torch": torch, "nn": torch.nn, "BaseQuantLinear": object}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in names:
            node.decorator_list = []
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
            exec(compile(ast.Module([node], []), str(path), "exec"), scope)
    return scope


class Quiet:
    def __getattr__(self, name):
        return Quiet()

    def __call__(self, *_):
        return None


def gptq(case, package, bits, group, v2, desc_act):
    layers = functions_of(package / "gptqmodel/nn_modules/qlinear/__init__.py",
                          {"dequantize_weight", "_dequantize_from_codes", "_torch_right_shift", "_torch_shift_factor"})
    convert = functions_of(package / "gptqmodel/utils/model.py", {"convert_gptq_v1_to_v2_format_module"})
    convert["log"] = Quiet()
    random = np.random.default_rng(30)
    tensors, expected = {}, {}
    for matrix, (rows, cols) in SHAPES.items():
        size = group if group > 0 else cols
        groups = cols // size
        values = random.integers(0, 1 << bits, (cols, rows))
        # Zeros of 1 and more: less one, they stay within their bits.
        zeros = random.integers(1, 1 << bits, (groups, rows))
        scales = torch.from_numpy(random.uniform(0.001, 0.01, (groups, rows)).astype(np.float16))
        index = np.arange(cols) // size
        if desc_act:
            random.shuffle(index)
        qzeros = pack((zeros if v2 else zeros - 1).T, bits).T.contiguous()
        stored = {"qweight": pack(values, bits), "qzeros": qzeros, "scales": scales,
                  "g_idx": torch.from_numpy(index.astype(np.int32))}
        tensors.update({f"{matrix}.{k}": v for k, v in stored.items()})
        fields = torch.arange(0, 32, bits, dtype=torch.int32).reshape(1, -1)
        module = types.SimpleNamespace(
            planar=False, bits=bits, pack_factor=32 // bits, maxq=(1 << bits) - 1, in_features=cols,
            dequant_dtype=torch.int32, qweight=stored["qweight"].clone(), qzeros=qzeros.clone(), scales=scales.float(),
            g_idx=stored["g_idx"], wf_unsqueeze_zero=fields.unsqueeze(0), wf_unsqueeze_neg_one=fields.unsqueeze(-1),
            _init_wf_unsqueeze_buffers=lambda: None, qzero_format=lambda format: None)
        module._dequantize_from_codes = lambda *a, **k: layers["_dequantize_from_codes"](module, *a, **k)
        if not v2:
            convert["convert_gptq_v1_to_v2_format_module"](module, bits, torch.int32)
        expected[matrix] = layers["dequantize_weight"](module).T
    save(case, {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": desc_act, "sym": False,
                "checkpoint_format": "gptq_v2" if v2 else "gptq"}, tensors, expected)


def awq(case, package, group):
    tool = {}
    exec((package / "awq/utils/packing_utils.py").read_text(), tool)
    random = np.random.default_rng(31)
    tensors, expected = {}, {}
    for matrix, (rows, cols) in SHAPES.items():
        words = lambda n: torch.from_numpy(random.integers(0, 1 << 32, (n, rows // 8), np.uint32).view(np.int32))
        scales = torch.from_numpy(random.uniform(0.001, 0.01, (cols // group, rows)).astype(np.float16))
        stored = {"qweight": words(cols), "qzeros": words(cols // group), "scales": scales}
        tensors.update({f"{matrix}.{k}": v for k, v in stored.items()})
        expected[matrix] = tool["dequantize_gemm"](stored["qweight"], stored["qzeros"], scales.float(), 4, group).T
    save(case, {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm",
                "modules_to_not_convert": None}, tensors, expected)


def fp8_block(case):
    tensors, expected = {}, {}
    for i, (matrix, (rows, cols)) in enumerate({"a": (130, 256), "b": (256, 200)}.items()):
        w = weights(40 + i, (rows, cols))
        scale = torch.rand((-(-rows // 128), -(-cols // 128)), generator=torch.Generator().manual_seed(i)) * 1e-3
        tensors[f"{matrix}.weight"] = (w / 1e-3).to(torch.float8_e4m3fn)
        tensors[f"{matrix}.weight_scale_inv"] = scale
        done = FP8BlockDequantizer(targets=["re:.*"], dtype=torch.float32).process(
            {f"{matrix}.{k}": tensors[f"{matrix}.{k}"] for k in ("weight", "weight_scale_inv")})
        expected[matrix] = done[f"{matrix}.weight"]
    save(case, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
         tensors, expected)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gptqmodel", type=pathlib.Path, required=True)
    parser.add_argument("--autoawq", type=pathlib.Path, required=True)
    args = parser.parse_args()
    integers = dict(type="int", num_bits=8, symmetric=True)
    token = dict(num_bits=8, type="int", symmetric=True, strategy="token", dynamic=True)
    compressed("ct-int8-channel", "int-quantized", dict(integers, strategy="channel"), activations=token)
    compressed("ct-int8-tensor-zero", "int-quantized", dict(integers, strategy="tensor", symmetric=False))
    halves = dict(type="int", num_bits=4)
    compressed("ct-int4-group", "pack-quantized", dict(halves, strategy="group", group_size=32, symmetric=True))
    compressed("ct-int4-group-zero", "pack-quantized", dict(halves, strategy="group", group_size=32, symmetric=False))
    compressed("ct-int4-channel", "pack-quantized", dict(halves, strategy="channel", symmetric=True), torch.float16)
    compressed("ct-int8-packed", "pack-quantized", dict(integers, strategy="group", group_size=32))
    floats = dict(type="float", num_bits=8, symmetric=True)
    compressed("ct-fp8-channel", "float-quantized", dict(floats, strategy="channel"))
    compressed("ct-fp8-tensor", "float-quantized", dict(floats, strategy="tensor"), torch.float32)
    fp8_block("fp8-block")
    gptq("gptq", args.gptqmodel, 4, 32, v2=False, desc_act=False)
    gptq("gptq-desc-act", args.gptqmodel, 4, 32, v2=False, desc_act=True)
    gptq("gptq-v2", args.gptqmodel, 4, 32, v2=True, desc_act=False)
    gptq("gptq-8-bits", args.gptqmodel, 8, -1, v2=False, desc_act=False)
    awq("awq", args.autoawq, 32)


if __name__ == "__main__":
    main()
