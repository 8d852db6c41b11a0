"""Writes traces.json: 1,200 draws with random parameters, each step of which NumPy has computed.

    pip install numpy   (traces.json came from numpy 2.4.6)
    python tests/golden/sampling/make_traces.py

It shares nothing with Baton but the order of the steps (proto/baton/v1/generation.proto, SamplingParams) and the generator of the
uniform numbers (Philox4x32-10, Salmon et al., SC'11). Penalties and biases are float32, all else is float64. Cases in which rounding could
move a border are drawn again. Logits are stored in units of 1 / 32, so that some are equal.
"""

import json
import pathlib

import numpy as np

NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
           "frequency_penalty": 0.0, "logit_bias": [], "mask": []}
VOCABULARY, GROUPS, CASES, MARGIN = 96, 40, 30, 1e-9


def uniform_at(seed, position):
    c, k, low = [position & 0xFFFFFFFF, position >> 32, 0, 0], [seed & 0xFFFFFFFF, seed >> 32], 0xFFFFFFFF
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & low, (p >> 32) ^ c[3] ^ k[1], p & low]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return ((c[0] << 32 | c[1]) >> 11) * 2.0**-53


def softmax(logits, temperature):
    weights = np.exp((logits - np.max(logits)) / temperature)
    return weights / weights.sum()


def draw_parameters(random):
    def sometimes(value, neutral, chance=0.5):
        return value if random.random() < chance else neutral

    single = lambda low, high: float(f"{random.uniform(low, high):.4g}")
    return {
        "temperature": sometimes(single(0.05, 3), sometimes(1.0, 0.0, 0.7), 0.8),
        "top_k": sometimes(int(random.integers(1, VOCABULARY + 8)), 0),
        "top_p": sometimes(single(0.02, 1), 1.0),
        "min_p": sometimes(single(0, 0.4), 0.0),
        "repetition_penalty": sometimes(single(0.6, 1.6), 1.0, 0.3),
        "presence_penalty": sometimes(single(-2, 2), 0.0, 0.3),
        "frequency_penalty": sometimes(single(-2, 2), 0.0, 0.3),
        "logit_bias": [[int(token), single(-9, 9)] for token in random.permutation(VOCABULARY)[: sometimes(3, 0, 0.3)]],
        "mask": sometimes(sorted(int(token) for token in random.permutation(VOCABULARY)[: random.integers(1, 40)]), [], 0.3),
        "seed": int(random.integers(0, 2**63)),
        "position": int(random.integers(0, 5000)),
    }


def trace(logits, prompt, output, p):
    """None: rounding could decide."""
    p = {name: float(np.float32(value)) if isinstance(value, float) else value for name, value in p.items()}
    adjusted = logits.copy()
    if p["repetition_penalty"] != 1:
        penalty = np.float32(p["repetition_penalty"])
        for token in set(prompt) | set(output):
            adjusted[token] = adjusted[token] * penalty if adjusted[token] < 0 else adjusted[token] / penalty
    for token in set(output):
        adjusted[token] -= np.float32(p["presence_penalty"]) + np.float32(p["frequency_penalty"]) * np.float32(output.count(token))
    for token, bias in p["logit_bias"]:
        adjusted[token] += np.float32(bias)
    unmasked = np.where(np.isnan(adjusted), -np.inf, adjusted).astype(np.float64)
    masked = unmasked.copy()
    if p["mask"]:
        masked[[token for token in range(VOCABULARY) if token not in p["mask"]]] = -np.inf
    possible = np.isfinite(masked)
    if not possible.any():
        return None
    counts = [int((logits > -np.inf).sum()), int(possible.sum())]
    order = np.lexsort((np.arange(VOCABULARY), -masked))  # descending, ties by ascending id
    order = order[: counts[1]]
    probability = softmax(unmasked, 1)
    tempered, drawn = np.zeros(VOCABULARY), np.zeros(VOCABULARY)
    if p["temperature"] == 0:
        tempered[order[0]] = drawn[order[0]] = 1
        counts += [1, 1, 1, 1]
        token, uniform = int(order[0]), None
    else:
        tempered = softmax(masked, p["temperature"])
        tempered = np.where(possible, tempered, 0)
        # A token that lies 690 below the likeliest one after the temperature has no weight.
        reach = (masked[order] - masked[order[0]]) / p["temperature"]
        if (np.abs(reach + 690) < 1e-3).any():
            return None
        kept = order[reach >= -690]
        tempered[order[reach < -690]] = 0
        counts.append(len(kept))
        if p["top_k"]:
            kept = kept[: p["top_k"]]
        counts.append(len(kept))
        if p["top_p"] < 1:
            mass = np.cumsum(tempered[kept]) / tempered[kept].sum()
            if (np.abs(mass - p["top_p"]) < MARGIN).any():
                return None
            kept = kept[: int((mass < p["top_p"]).sum()) + 1]
        counts.append(len(kept))
        share = tempered[kept] / tempered[order[0]]
        if (np.abs(share[share != 1] - p["min_p"]) < MARGIN).any():
            return None
        kept = kept[share >= p["min_p"]]
        counts.append(len(kept))
        drawn[kept] = tempered[kept] / tempered[kept].sum()
        uniform = uniform_at(p["seed"], p["position"])
        passed = np.cumsum(drawn[kept])
        if (np.abs(passed - uniform) < MARGIN).any():
            return None
        token = int(kept[min(int((passed <= uniform).sum()), len(kept) - 1)])
    likeliest = [int(token) for token in order[:10]]
    if token not in likeliest:
        likeliest.append(token)
    digits = lambda values: [float(f"{values[token]:.6g}") for token in likeliest]
    return {"token": token, "uniform": uniform, "counts": counts, "likeliest": likeliest,
            "adjusted": digits(unmasked), "probability": digits(probability), "tempered": digits(tempered), "drawn": digits(drawn)}


def main():
    random = np.random.default_rng(38)
    groups = []
    for group in range(GROUPS):
        units = np.round(random.standard_normal(VOCABULARY) * random.choice([16, 64, 200])).astype(int)
        absent = [int(token) for token in random.permutation(VOCABULARY)[: group % 4]]
        not_numbers = [int(token) for token in random.permutation(VOCABULARY)[: group % 3]]
        logits = (units / 32).astype(np.float32)
        logits[absent] = -np.inf
        logits[not_numbers] = np.nan
        prompt = [int(token) for token in random.integers(0, VOCABULARY, 12)]
        output = [int(token) for token in random.integers(0, VOCABULARY, 8)]
        cases = []
        while len(cases) < CASES:
            parameters = draw_parameters(random)
            if (expected := trace(logits, prompt, output, parameters)) is None:
                continue
            if len(cases) % 6:  # tokens of every sixth
                expected = {name: expected[name] for name in ("token", "uniform", "counts")}
            told = {name: value for name, value in parameters.items() if name not in NEUTRAL or value != NEUTRAL[name]}
            cases.append({"parameters": told, "expected": expected})
        groups.append({"logits": [int(unit) for unit in units], "absent": absent, "not_numbers": not_numbers,
                       "prompt": prompt, "output": output, "cases": cases})
    path = pathlib.Path(__file__).with_name("traces.json")
    path.write_text(json.dumps(groups, separators=(",", ":")).replace('{"parameters"', '\n{"parameters"') + "\n")
    print(f"{GROUPS * CASES} draws in {path}")


if __name__ == "__main__":
    main()
