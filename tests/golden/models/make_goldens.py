#!/usr/bin/env python3
"""Makes the golden models: tiny random models, and what transformers computes with them.

    pip install -r requirements.txt
    ./make_goldens.py            # writes data/<case>/ anew, and data/rope.json
    ./make_goldens.py CASE...    # writes these alone

Each case gets config.json and weights as a Hugging Face folder has them, golden.json (prompt and greedy tokens) and
golden.safetensors (logits [positions, vocabulary] of the prompt's last positions and of 32 greedy steps), computed in
float32 with eager attention. Weights are drawn much wider than a fresh model's, so that the logits are far apart; a
seed whose two best logits ever come closer than MARGIN is skipped, so that equal greedy tokens can be asked of any
backend within tolerance. Of mixtures of experts, neither the choice of experts nor that of groups may come close.
"""

import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import (ArceeConfig, AutoModelForCausalLM, AutoModelForImageTextToText, Ernie4_5Config, Glm4MoeConfig,
                          GptOssConfig, GraniteConfig, HunYuanDenseV1Config, LlamaConfig, Ministral3Config,
                          Mistral3Config, MistralConfig, MixtralConfig, Mxfp4Config, Olmo2Config, Olmo3Config,
                          OlmoeConfig, Phi3Config, PixtralVisionConfig, Qwen2Config, Qwen2MoeConfig, Qwen3Config,
                          Qwen3MoeConfig, SeedOssConfig, SmolLM3Config)
from transformers.integrations.mxfp4 import FP4_VALUES, convert_moe_packed_tensors
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

DATA = pathlib.Path(__file__).parent / "data"
STEPS = 32
PREFILL_POSITIONS = 4
MARGIN = 0.05
CHOICE_MARGIN = 2e-4

SHAPE = dict(vocab_size=150, hidden_size=64, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2)


def rope(kind, theta=10000.0, **options):
    return dict(rope_type=kind, rope_theta=theta, **options)


GPT_OSS = dict(**{**SHAPE, "num_hidden_layers": 3, "intermediate_size": 64}, head_dim=32, sliding_window=24,
               num_local_experts=8, num_experts_per_tok=3, rope_parameters=rope(
                   "yarn", 150000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                   original_max_position_embeddings=64))

SMALL = {**SHAPE, "vocab_size": 110, "intermediate_size": 48}
MINISTRAL3 = dict(**SMALL, head_dim=20, pad_token_id=0, rope_parameters=rope(
    "yarn", 20000.0, factor=8.0, beta_fast=16.0, beta_slow=2.0, mscale=1.0, mscale_all_dim=0.5,
    original_max_position_embeddings=16, llama_4_scaling_beta=0.3))
VISION = PixtralVisionConfig(hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, head_dim=8,
                             image_size=8, patch_size=4)

# name: (config, prompt length, dtype of the weights, options)
# v4: config.json as transformers 4 wrote it (rope_theta, rope_scaling, torch_dtype, no layer_types).
CASES = {
    "llama-mha": (LlamaConfig(**{**SHAPE, "num_key_value_heads": 4}), 48, torch.float32, {"v4": True}),
    "llama-gqa-tied": (LlamaConfig(**{**SHAPE, "num_attention_heads": 8}, tie_word_embeddings=True), 50,
                       torch.bfloat16, {}),
    "llama3-rope": (LlamaConfig(**SHAPE, rope_parameters=rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
        70, torch.bfloat16, {"v4": True}),
    "llama-linear": (LlamaConfig(**SHAPE, rope_parameters=rope("linear", factor=4.0)), 64, torch.float16, {}),
    "llama-dynamic": (LlamaConfig(**SHAPE, rope_parameters=rope("dynamic", factor=2.0)), 61, torch.bfloat16, {}),
    # 93 positions at the end, beyond the original length and within the context.
    "llama-dynamic-original": (LlamaConfig(**SHAPE, rope_parameters=rope(
        "dynamic", factor=4.0, original_max_position_embeddings=64)), 61, torch.bfloat16, {}),
    "llama-yarn": (LlamaConfig(**SHAPE, rope_parameters=rope(
        "yarn", factor=4.0, original_max_position_embeddings=64)), 75, torch.bfloat16, {"v4": True}),
    "llama-bias": (LlamaConfig(**SHAPE, head_dim=32, attention_bias=True, mlp_bias=True), 49, torch.bfloat16, {}),
    "llama-sharded": (LlamaConfig(**SHAPE), 52, torch.bfloat16, {"shard": "60KB"}),
    # Heads that are no multiple of 8 values, as open_llama_3b's of 100.
    "llama-heads-of-20": (LlamaConfig(**{**SHAPE, "hidden_size": 80}), 50, torch.bfloat16, {"v4": True}),
    "qwen3-heads-of-10": (Qwen3Config(**SHAPE, head_dim=10, tie_word_embeddings=True), 45, torch.bfloat16, {}),
    "mistral-window": (MistralConfig(**SHAPE, sliding_window=24), 64, torch.bfloat16, {"v4": True}),
    "mistral-null-window": (MistralConfig(**SHAPE, head_dim=32, sliding_window=None), 55, torch.bfloat16, {}),
    "qwen2": (Qwen2Config(**SHAPE, tie_word_embeddings=True, rope_parameters=rope("default", 1e6)), 57,
              torch.bfloat16, {}),
    "qwen2-window": (Qwen2Config(**{**SHAPE, "num_hidden_layers": 3}, use_sliding_window=True, sliding_window=20,
                                 max_window_layers=1), 66, torch.bfloat16, {"v4": True}),
    "qwen3": (Qwen3Config(**SHAPE, head_dim=32, rope_parameters=rope("default", 1e6)), 60, torch.bfloat16, {}),
    "qwen3-window": (Qwen3Config(**{**SHAPE, "num_hidden_layers": 3}, head_dim=16, use_sliding_window=True,
                                 sliding_window=18, attention_bias=True, tie_word_embeddings=True,
                                 layer_types=["sliding_attention", "full_attention", "sliding_attention"]), 80,
                     torch.bfloat16, {}),
    "qwen3-moe": (Qwen3MoeConfig(**{**SHAPE, "num_hidden_layers": 3}, head_dim=32, num_experts=8,
                                 num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=True,
                                 mlp_only_layers=[1], rope_parameters=rope("default", 1e6)), 60, torch.bfloat16, {}),
    "qwen2-moe": (Qwen2MoeConfig(**{**SHAPE, "num_hidden_layers": 3}, num_experts=6, num_experts_per_tok=2,
                                 moe_intermediate_size=24, shared_expert_intermediate_size=40, decoder_sparse_step=2),
                  55, torch.bfloat16, {"v4": True}),
    "mixtral": (MixtralConfig(**{**SHAPE, "intermediate_size": 48}, num_local_experts=4, num_experts_per_tok=2,
                              rope_parameters=rope("default", 1e6)), 52, torch.bfloat16, {"v4": True}),
    "olmoe": (OlmoeConfig(**{**SHAPE, "intermediate_size": 32}, pad_token_id=0, num_experts=8, num_experts_per_tok=3),
              50, torch.float32, {"shard": "100KB"}),
    "glm4-moe": (Glm4MoeConfig(**{**SHAPE, "num_hidden_layers": 3}, head_dim=32, n_routed_experts=12,
                               num_experts_per_tok=3, moe_intermediate_size=24, n_shared_experts=2, n_group=4,
                               topk_group=2, routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True,
                               first_k_dense_replace=1), 58, torch.bfloat16, {}),
    "smollm3": (SmolLM3Config(**{**SHAPE, "num_hidden_layers": 3}, no_rope_layer_interval=2, use_sliding_window=True,
                              sliding_window=20, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
                              pad_token_id=0, rope_parameters=rope("default", 5e5)), 58, torch.bfloat16, {}),
    # The defaults where config.json is silent: every fourth layer without rope, four KV heads, a tied head.
    "smollm3-defaults": (SmolLM3Config(**{**SHAPE, "num_hidden_layers": 4, "num_attention_heads": 8,
                                          "num_key_value_heads": 4}, pad_token_id=0), 50, torch.bfloat16,
                         {"without": ["num_key_value_heads", "no_rope_layers", "no_rope_layer_interval",
                                      "layer_types", "tie_word_embeddings", "rope_parameters"]}),
    "granite": (GraniteConfig(**SHAPE, pad_token_id=0, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                              embedding_multiplier=0.3, attention_multiplier=0.3, residual_multiplier=1.5,
                              logits_scaling=0.5, rope_parameters=rope("default", 5e5)), 54, torch.bfloat16, {}),
    "granite-defaults": (GraniteConfig(**SHAPE), 45, torch.bfloat16,
                         {"without": ["embedding_multiplier", "attention_multiplier", "residual_multiplier",
                                      "logits_scaling", "tie_word_embeddings", "rope_parameters"]}),
    "seed-oss": (SeedOssConfig(**SHAPE, head_dim=24, pad_token_id=0, attention_bias=False, attention_out_bias=True,
                               mlp_bias=True, tie_word_embeddings=True, rope_parameters=rope("default", 1e6)), 51,
                 torch.bfloat16, {}),
    # Narrow and of one layer, because by default it has eight KV heads of 128 values.
    "seed-oss-defaults": (SeedOssConfig(**{**SHAPE, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 8,
                                           "num_key_value_heads": 8}), 40, torch.bfloat16, {"without": [
                              "num_key_value_heads", "head_dim", "attention_bias", "attention_out_bias", "mlp_bias",
                              "tie_word_embeddings", "rope_parameters"]}),
    "arcee": (ArceeConfig(**SHAPE, head_dim=24, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                          rope_parameters=rope("yarn", 5e5, factor=4.0, original_max_position_embeddings=64)), 53,
              torch.bfloat16, {}),
    "arcee-defaults": (ArceeConfig(**{**SHAPE, "num_key_value_heads": 4}), 47, torch.bfloat16, {"without": [
        "num_key_value_heads", "head_dim", "hidden_act", "attention_bias", "mlp_bias", "tie_word_embeddings",
        "rope_parameters"]}),
    "ministral3": (Ministral3Config(**MINISTRAL3, sliding_window=20, tie_word_embeddings=True), 61, torch.bfloat16, {}),
    # Narrow and of one layer, because by default it has eight KV heads of 128 values.
    "ministral3-defaults": (Ministral3Config(**{**MINISTRAL3, "hidden_size": 8, "num_hidden_layers": 1,
                                                "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128}),
                            50, torch.bfloat16, {"without": ["num_key_value_heads", "head_dim", "sliding_window",
                                                             "tie_word_embeddings"]}),
    # The text part of models that see images: as transformers 5 writes it, and as it names tensors itself.
    "mistral3": (Mistral3Config(text_config=Ministral3Config(**MINISTRAL3).to_dict(), vision_config=VISION,
                                tie_word_embeddings=False), 55, torch.bfloat16, {}),
    "mistral3-tied": (Mistral3Config(text_config=MistralConfig(**SMALL, head_dim=20, sliding_window=None,
                                                               rope_parameters=rope("default", 1e6)).to_dict(),
                                     vision_config=VISION, tie_word_embeddings=True), 45, torch.bfloat16,
                      {"own_names": True}),
    "hunyuan-v1": (HunYuanDenseV1Config(**SMALL, head_dim=20, attention_bias=True, tie_word_embeddings=True,
                                        rope_parameters=rope("dynamic", 20000.0, alpha=30.0, factor=1.0)), 52,
                   torch.bfloat16, {}),
    "hunyuan-v1-defaults": (HunYuanDenseV1Config(**{**SMALL, "num_key_value_heads": 4}, head_dim=16), 44,
                            torch.bfloat16, {"without": ["num_key_value_heads", "attention_bias",
                                                         "tie_word_embeddings", "rope_parameters"]}),
    "ernie4-5": (Ernie4_5Config(**{**SMALL, "num_key_value_heads": 1}, head_dim=20, use_bias=True,
                                tie_word_embeddings=False, rope_parameters=rope("linear", 20000.0, factor=2.0)), 50,
                 torch.bfloat16, {}),
    "ernie4-5-defaults": (Ernie4_5Config(**{**SMALL, "hidden_size": 16, "num_hidden_layers": 1}), 41, torch.bfloat16,
                          {"without": ["num_key_value_heads", "head_dim", "use_bias", "tie_word_embeddings",
                                       "rope_parameters"]}),
    "olmo2": (Olmo2Config(**SMALL, pad_token_id=0, attention_bias=True, tie_word_embeddings=True,
                          rope_parameters=rope("linear", 5e5, factor=2.0)), 51, torch.bfloat16, {}),
    "olmo2-defaults": (Olmo2Config(**{**SMALL, "num_key_value_heads": 4}, pad_token_id=0), 43, torch.bfloat16,
                       {"without": ["num_key_value_heads", "attention_bias", "tie_word_embeddings",
                                    "rope_parameters"]}),
    "olmo3": (Olmo3Config(**{**SMALL, "num_hidden_layers": 3}, pad_token_id=0, attention_bias=True,
                          tie_word_embeddings=True, sliding_window=20,
                          layer_types=["full_attention", "sliding_attention", "full_attention"],
                          rope_parameters={"full_attention": rope("yarn", 1e6, factor=4.0,
                                                                  original_max_position_embeddings=64),
                                           "sliding_attention": rope("default", 30000.0)}), 66, torch.bfloat16, {}),
    "olmo3-defaults": (Olmo3Config(**{**SMALL, "num_hidden_layers": 4, "hidden_size": 32, "num_key_value_heads": 4},
                                   pad_token_id=0), 47, torch.bfloat16,
                       {"without": ["num_key_value_heads", "attention_bias", "tie_word_embeddings", "layer_types",
                                    "sliding_window", "rope_parameters"]}),
    # Positions beyond the original length, as all are taken to be; and a context that does not go beyond it.
    "phi3-long": (Phi3Config(**SMALL, pad_token_id=0, sliding_window=30, tie_word_embeddings=True,
                             original_max_position_embeddings=32,
                             rope_parameters=rope("longrope", 30000.0, partial_rotary_factor=0.75,
                                                  short_factor=[1.0, 1.1, 1.2, 1.3, 1.5, 1.7],
                                                  long_factor=[1.0, 1.5, 2.0, 4.0, 6.0, 9.0])), 60,
                  torch.bfloat16, {}),
    "phi3-short": (Phi3Config(**SMALL, pad_token_id=0, original_max_position_embeddings=256,
                              rope_parameters=rope("longrope", attention_factor=1.2,
                                                   short_factor=[1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 1.8, 2.0],
                                                   long_factor=[1.0, 1.5, 2.0, 4.0, 6.0, 9.0, 11.0, 12.0])), 50,
                   torch.bfloat16, {}),
    "phi3-defaults": (Phi3Config(**{**SMALL, "num_key_value_heads": 4}, pad_token_id=0), 42, torch.bfloat16,
                      {"without": ["num_key_value_heads", "tie_word_embeddings", "sliding_window", "rope_parameters",
                                   "original_max_position_embeddings"]}),
    "gpt-oss": (GptOssConfig(**GPT_OSS, swiglu_limit=1.5), 75, torch.bfloat16, {}),
    "gpt-oss-mxfp4": (GptOssConfig(**GPT_OSS), 75, torch.bfloat16, {"mxfp4": True, "v4": True}),
}


def auto(config):
    return AutoModelForImageTextToText if isinstance(config, Mistral3Config) else AutoModelForCausalLM


def draw(config, seed, dtype):
    """A model whose every weight matters: wide matrices, norms and biases away from 1 and 0."""
    generator = torch.Generator().manual_seed(seed)
    model = auto(config).from_config(config, attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            noise = torch.randn(tensor.shape, generator=generator)
            if name.endswith("norm.weight"):
                tensor.copy_(1 + 0.2 * noise)
            elif name.endswith("sinks"):
                tensor.copy_(2 * noise)
            elif name.endswith("bias"):
                tensor.copy_(0.3 * noise)
            elif "embed_tokens" in name or "lm_head" in name:
                tensor.copy_(0.5 * noise)
            else:
                tensor.copy_(1.5 * noise / tensor.shape[-1] ** 0.5)
        for name, tensor in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                tensor.copy_(0.2 * torch.randn(tensor.shape, generator=generator))
    return model.to(dtype)


def watch_choices(model):
    """The smallest distances between what routers chose and what they did not, as they come."""
    found = []

    def distance(values, chosen):
        best = values.sort(-1, descending=True).values
        if chosen < values.shape[-1]:
            found.append((best[..., chosen - 1] - best[..., chosen]).min().item())

    def watch(router, _, output):
        logits = output[0]
        bias = getattr(router, "e_score_correction_bias", None)
        if bias is None:
            return distance(logits.softmax(-1), router.top_k)
        values = logits.sigmoid() + bias
        groups = values.view(-1, router.num_group, router.num_experts // router.num_group)
        sums = groups.topk(2, -1).values.sum(-1)
        distance(sums, router.topk_group)
        kept = torch.zeros_like(sums).scatter_(1, sums.topk(router.topk_group).indices, 1).bool()
        distance(groups.masked_fill(~kept[..., None], float("-inf")).flatten(1), router.top_k)

    for module in model.modules():
        if type(module).__name__.lower().endswith("topkrouter"):
            module.register_forward_hook(watch)
    return found


def to_mxfp4(tensor):
    """[experts, in, out] as blocks and scales: the nearest of E2M1, with the largest power of two that uses it all."""
    groups = tensor.float().transpose(1, 2).unflatten(-1, (-1, 32))
    exponent = torch.floor(torch.log2(groups.abs().amax(-1, keepdim=True))) - 2
    codes = ((groups / 2 ** exponent)[..., None] - torch.tensor(FP4_VALUES)).abs().argmin(-1).to(torch.uint8)
    blocks = codes[..., ::2] | codes[..., 1::2] << 4
    return blocks.contiguous(), (exponent.squeeze(-1) + 127).to(torch.uint8).contiguous()


def as_mxfp4(folder):
    """Experts as OpenAI published them."""
    tensors = load_file(folder / "model.safetensors")
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        tensors[name + "_blocks"], tensors[name + "_scales"] = to_mxfp4(tensors.pop(name))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def as_v4(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters.pop("rope_theta")
    config["rope_scaling"] = None if parameters["rope_type"] == "default" else parameters
    config["torch_dtype"] = config.pop("dtype")
    config.pop("layer_types", None)
    config["transformers_version"] = "4.46.0"
    path.write_text(json.dumps(config, indent=2) + "\n")


def make(name, config, length, dtype, options):
    folder = DATA / name
    shutil.rmtree(folder, ignore_errors=True)
    for seed in range(1, 200):
        model = draw(config, seed, dtype)
        model.save_pretrained(folder, max_shard_size=options.get("shard", "1GB"))
        (folder / "generation_config.json").unlink(missing_ok=True)
        if options.get("v4"):
            as_v4(folder)
        if options.get("own_names"):
            save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()
                       if name != "lm_head.weight"}, folder / "model.safetensors", metadata={"format": "pt"})
        for field in options.get("without", []):
            path = folder / "config.json"
            full = json.loads(path.read_text())
            del full[field]
            path.write_text(json.dumps(full, indent=2) + "\n")
        loading = {}
        if options.get("mxfp4"):
            as_mxfp4(folder)
            loading = {"quantization_config": Mxfp4Config(dequantize=True)}
        model = auto(config).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                     **loading).eval().float()
        choices = watch_choices(model)
        generator = torch.Generator().manual_seed(1000 + seed)
        tokens = torch.randint(3, config.get_text_config().vocab_size, (1, length), generator=generator)
        with torch.no_grad():
            for _ in range(STEPS):
                tokens = torch.cat([tokens, model(tokens, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
            logits = model(tokens, use_cache=False).logits[0, length - PREFILL_POSITIONS:].contiguous()
        best = logits[PREFILL_POSITIONS - 1:].topk(2).values
        margin = (best[:, 0] - best[:, 1]).min().item()
        if margin < MARGIN or min(choices, default=1) < CHOICE_MARGIN:
            continue
        following = logits[-1].argmax().item()
        golden = {"seed": seed, "margin": round(margin, 4), "prompt": tokens[0, :length].tolist(),
                  "greedy": tokens[0, length:].tolist() + [following], "prefill_positions": PREFILL_POSITIONS}
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")
        save_file({"logits": logits}, folder / "golden.safetensors")
        print(f"{name}: seed {seed}, margin {margin:.3f}, largest logit {logits.abs().max():.1f}, "
              f"{len(set(golden['greedy']))} different greedy tokens")
        return
    raise SystemExit(f"{name}: no seed keeps the two best logits {MARGIN} apart")


# Rope scalings at the sizes of real models: inverse frequencies and the factor on cosines and sines.
ROPES = {
    "llama-3.1": (dict(head_dim=128, max_position_embeddings=131072), rope(
        "llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192)),
    "llama-3.2": (dict(head_dim=64, max_position_embeddings=131072), rope(
        "llama3", 500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=8192)),
    "linear": (dict(head_dim=128, max_position_embeddings=16384), rope("linear", factor=4.0)),
    "dynamic": (dict(head_dim=128, max_position_embeddings=4096), rope("dynamic", factor=2.0)),
    "dynamic-original": (dict(head_dim=128, max_position_embeddings=4096), rope(
        "dynamic", factor=4.0, original_max_position_embeddings=1024)),
    "yarn-qwen2.5": (dict(head_dim=128, max_position_embeddings=32768), rope(
        "yarn", 1e6, factor=4.0, original_max_position_embeddings=32768)),
    "yarn-mscale": (dict(head_dim=64, max_position_embeddings=163840), rope(
        "yarn", 10000.0, factor=40.0, original_max_position_embeddings=4096, beta_fast=32, beta_slow=1, mscale=0.7,
        mscale_all_dim=1.0)),
    "yarn-untruncated": (dict(head_dim=64, max_position_embeddings=131072), rope(
        "yarn", 150000.0, factor=32.0, original_max_position_embeddings=4096, beta_fast=24.0, beta_slow=2.0,
        truncate=False, attention_factor=1.25)),
}


def make_mxfp4():
    """Every pair of values, and every scale: what transformers makes of them, [experts, in, out]."""
    generator = torch.Generator().manual_seed(5)
    blocks = torch.randint(0, 256, (3, 8, 22, 16), generator=generator, dtype=torch.uint8)
    blocks[0, 0, :16] = torch.arange(256, dtype=torch.uint8).view(16, 16)
    scales = torch.randint(0, 255, (3, 8, 22), generator=generator, dtype=torch.uint8)
    scales.view(-1)[:255] = torch.arange(255, dtype=torch.uint8)
    folder = DATA / "mxfp4"
    folder.mkdir(exist_ok=True)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    save_file({f"{name}_blocks": blocks, f"{name}_scales": scales,
               "expected": convert_moe_packed_tensors(blocks, scales).contiguous()}, folder / "model.safetensors")


def make_ropes():
    out = {}
    for name, (shape, parameters) in ROPES.items():
        config = LlamaConfig(**{**SHAPE, **shape}, rope_parameters=dict(parameters))
        # The longest sequence that the context takes.
        inverse, scale = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, seq_len=shape["max_position_embeddings"])
        out[name] = {"head_dim": shape["head_dim"], "max_position_embeddings": shape["max_position_embeddings"],
                     "rope_parameters": parameters, "inverse_frequencies": inverse.double().tolist(), "scale": scale}
    (DATA / "rope.json").write_text(json.dumps(out, indent=0) + "\n")


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for case, (case_config, prompt, weights, extra) in CASES.items():
        if case in sys.argv[1:] or len(sys.argv) == 1:
            make(case, case_config, prompt, weights, extra)
    if len(sys.argv) == 1:
        make_ropes()
        make_mxfp4()
