#!/usr/bin/env python3
"""Makes data/reap.json: what pruning experts by REAP gives on golden models, computed by transformers and NumPy.

    pip install -r requirements.txt
    ./make_reap.py

Of each case: tokens, a score for each expert (the mean, over the tokens that chose it, of weight * L2 norm of what it
gave), the experts that are left, losses per token before and after, and the pruned model's logits of some positions.
transformers runs the model and says what routers chose; what each expert gives is computed from the stored weights in
float64. The pruned folder is written here, too, and loaded by transformers.
"""

import json
import pathlib
import shutil
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Mxfp4Config
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

DATA = pathlib.Path(__file__).parent / "data"
WINDOW = 64
POSITIONS = 4
# name: (experts that are left in each group, of so many groups)
CASES = {"qwen3-moe": (6, 1), "glm4-moe": (2, 4), "mixtral": (3, 1), "qwen2-moe": (4, 1), "gpt-oss": (6, 1),
         "gpt-oss-mxfp4": (5, 1)}


def load(folder):
    packed = "quantization_config" in json.loads((folder / "config.json").read_text())
    options = {"quantization_config": Mxfp4Config(dequantize=True)} if packed else {}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **options)
    return model.eval().float()


def routers(model):
    for name, module in model.named_modules():
        if type(module).__name__.lower().endswith("topkrouter"):
            yield int(name.split(".")[2]), name, module


def windows(tokens):
    return [tokens[i:i + WINDOW] for i in range(0, len(tokens), WINDOW)]


def loss(model, tokens):
    total, count = 0.0, 0
    for window in windows(tokens):
        with torch.no_grad():
            logits = model(torch.tensor([window]), use_cache=False).logits[0].double()
        losses = -logits.log_softmax(-1)[:-1].gather(1, torch.tensor(window[1:])[:, None])
        total, count = total + losses.sum().item(), count + len(window) - 1
    return total / count


def fused(tensors, name):
    if name in tensors:
        return tensors[name]
    return convert_moe_packed_tensors(tensors[name + "_blocks"], tensors[name + "_scales"])


def expert_gives(tensors, prefix, expert, x, config):
    """What one expert makes of rows x."""
    if prefix + "router.weight" in tensors:
        experts = prefix + "experts."
        gate_up_bias, down_bias = (tensors[f"{experts}{name}_proj_bias"][expert].double().numpy()
                                   for name in ("gate_up", "down"))
        gate_up, down = (fused(tensors, f"{experts}{name}_proj")[expert].double().numpy()
                         for name in ("gate_up", "down"))
        y = x @ gate_up + gate_up_bias
        limit, alpha = config["swiglu_limit"], config["swiglu_alpha"]
        g, u = np.minimum(y[:, ::2], limit), np.clip(y[:, 1::2], -limit, limit)
        return (g / (1 + np.exp(-alpha * g)) * (u + 1)) @ down + down_bias
    gate, up, down = expert_weights(tensors, prefix, expert)
    g = x @ gate.T
    return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T


def expert_weights(tensors, prefix, expert):
    for names in (("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")):
        keys = [f"{prefix}experts.{expert}.{name}.weight" for name in names]
        if keys[0] in tensors:
            return [tensors[key].double().numpy() for key in keys]
    raise KeyError(prefix)


def block_of(tensors, layer):
    return next(f"model.layers.{layer}.{block}." for block in ("mlp", "block_sparse_moe")
                for router in ("gate", "router") if f"model.layers.{layer}.{block}.{router}.weight" in tensors)


def scores(model, tensors, tokens, config):
    seen = {layer: [] for layer, _, _ in routers(model)}

    def watch(layer):
        return lambda module, inputs, output: seen[layer].append((inputs[0].reshape(-1, inputs[0].shape[-1]), *output[1:]))

    hooks = [module.register_forward_hook(watch(layer)) for layer, _, module in routers(model)]
    for window in windows(tokens):
        with torch.no_grad():
            model(torch.tensor([window]), use_cache=False)
    for hook in hooks:
        hook.remove()
    result = {}
    for layer, calls in seen.items():
        prefix = block_of(tensors, layer)
        count = next(tensors[f"{prefix}{router}.weight"].shape[0] for router in ("gate", "router")
                     if f"{prefix}{router}.weight" in tensors)
        totals, tokens_of = np.zeros(count), np.zeros(count, dtype=int)
        for hidden, weights, ids in calls:
            for expert in range(count):
                rows, places = np.nonzero(ids.numpy() == expert)
                x = hidden.double().numpy()[rows]
                given = expert_gives(tensors, prefix, expert, x, config)
                totals[expert] += (weights.double().numpy()[rows, places] * np.linalg.norm(given, axis=1)).sum()
                tokens_of[expert] += len(rows)
        result[layer] = (totals / np.maximum(tokens_of, 1), tokens_of)
    return result


def prune(folder, target, kept):
    tensors = load_file(folder / "model.safetensors")
    out = {}
    for name, tensor in tensors.items():
        for layer, ids in kept.items():
            prefix = block_of(tensors, layer)
            if not name.startswith(prefix):
                continue
            rest = name[len(prefix):]
            if prefix + "router.weight" in tensors:
                tensor = tensor[ids].contiguous()  # all of a layer's experts in each
            elif rest.startswith("experts."):
                _, expert, tail = rest.split(".", 2)
                name = f"{prefix}experts.{ids.index(int(expert))}.{tail}" if int(expert) in ids else None
            elif rest in ("gate.weight", "gate.e_score_correction_bias"):
                tensor = tensor[ids].contiguous()
            break
        if name is not None:
            out[name] = tensor
    save_file(out, target / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    for key in ("num_experts", "num_local_experts", "n_routed_experts"):
        if key in config:
            config[key] = len(next(iter(kept.values())))
    (target / "config.json").write_text(json.dumps(config))


def main():
    out = {}
    for name, (left, groups) in CASES.items():
        folder = DATA / name
        generator = np.random.default_rng(17)
        calibration, held_out = (generator.integers(3, 150, size).tolist() for size in (200, 100))
        model, tensors = load(folder), load_file(folder / "model.safetensors")
        kept, layers = {}, []
        config = json.loads((folder / "config.json").read_text())
        for layer, (score, tokens) in sorted(scores(model, tensors, calibration, config).items()):
            size = len(score) // groups
            ids = [g * size + int(e) for g in range(groups)
                   for e in sorted(np.argsort(-score[g * size:(g + 1) * size], kind="stable")[:left])]
            kept[layer] = ids
            layers.append({"layer": layer, "kept": ids, "scores": score.tolist(), "tokens": tokens.tolist()})
        target = pathlib.Path(tempfile.mkdtemp())
        prune(folder, target, kept)
        pruned = load(target)
        with torch.no_grad():
            logits = pruned(torch.tensor([held_out[:WINDOW]]), use_cache=False).logits[0, -POSITIONS:]
        out[name] = {"keep": left * groups / len(layers[0]["scores"]), "window": WINDOW, "calibration": calibration,
                     "held_out": held_out, "layers": layers, "loss_before": loss(model, held_out),
                     "loss_after": loss(pruned, held_out), "logits": logits.double().flatten().tolist()}
        shutil.rmtree(target)
        print(name, out[name]["loss_before"], out[name]["loss_after"], kept)
    (DATA / "reap.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
