"""Measures a folder with Hugging Face transformers: recall by kind and distance, sums, stories, thinking, tool calls.

    python evaluate.py --model ../baton-tiny
"""

import argparse
import collections
import json
import pathlib
import random
import re

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from corpus import chat, sums
from corpus.conversation import tool_conversation
from corpus.words import Split


class Speaker:
    """Greedy decoding of one conversation at a time."""

    def __init__(self, folder: pathlib.Path):
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.end = self.tokenizer.convert_tokens_to_ids(chat.END)

    @torch.no_grad()
    def say(self, messages: list[dict], limit: int = 60, **template) -> tuple[str, bool]:
        """The answer, and whether the model ended it by itself."""
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **template)
        prompt = self.tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
        ids = self.model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, temperature=None,
                                  top_p=None, top_k=None, max_new_tokens=limit)[0, prompt.shape[1] :].tolist()
        ended = ids[-1] == self.end
        return self.tokenizer.decode(ids[:-1] if ended else ids), ended


def recalls(answer: str, expected: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(expected)}(?!\w)", answer) is not None


def table(scores: dict, rows: list, columns: list) -> None:
    print(f"{'':>10}" + "".join(f"{c:>10}" for c in columns) + f"{'all':>10}")
    for row in rows + ["all"]:
        cells = []
        for column in columns + ["all"]:
            hits = [h for (r, c), hs in scores.items() for h in hs if row in (r, "all") and column in (c, "all")]
            cells.append(f"{100 * sum(hits) / len(hits):>9.1f}%" if hits else f"{'-':>10}")
        print(f"{row:>10}" + "".join(cells))


def measure_recall(speaker: Speaker, path: pathlib.Path, misses: int) -> None:
    by_kind, by_place = collections.defaultdict(list), collections.defaultdict(list)
    for line in path.read_text().splitlines():
        case = json.loads(line)
        answer, ended = speaker.say(case["messages"])
        hit = ended and recalls(answer, case["expected"])
        by_kind[case["kind"], case["distance"]].append(hit)
        by_place[case["where"], case["distance"]].append(hit)
        if not hit and misses > 0:
            misses -= 1
            print(f"  {case['id']}: {case['messages'][-1]['content']} wanted {case['expected']!r}, said {answer!r}")
    distances = sorted({d for _, d in by_kind})
    table(by_kind, ["name", "number", "colour", "place"], distances)
    table(by_place, ["system", "user"], distances)


def measure_sums(speaker: Speaker, count: int) -> None:
    for label, top in (("one digit", 9), ("two digits", 99)):
        for thinking in (False, True):
            rng, right = random.Random(5), 0
            for _ in range(count):
                a, b = rng.randint(0, top), rng.randint(0, top)
                answer, ended = speaker.say([{"role": "user", "content": sums.question(rng, a, b)}], 90,
                                            enable_thinking=thinking)
                well_formed = answer.startswith("<think>\n") == thinking and answer.count("</think>") == thinking
                right += ended and well_formed and answer.endswith(sums.answer(a, b))
            print(f"sums of {label}{', thinking' if thinking else ''}: {right}/{count}")


def measure_tools(speaker: Speaker, count: int) -> None:
    rng, right = random.Random(6), 0
    for _ in range(count):
        talk = tool_conversation(rng, Split.HELD_OUT)
        at = next(i for i, m in enumerate(talk.messages) if m.get("tool_calls"))
        system = [{"role": "system", "content": talk.system}] if talk.system else []
        answer, ended = speaker.say(system + talk.messages[:at], 80, tools=talk.tools)
        right += ended and answer == chat.call_text(talk.messages[at]["tool_calls"][0])
    print(f"tool calls, held-out arguments: {right}/{count}")


def show(speaker: Speaker) -> None:
    talks = (
        ["Hello!", "How are you?", "Tell me a story about a fox.", "Thank you!"],
        ["Hello! My name is Ada. My lucky number is 417.", "What is 7 + 5?", "Tell me a story about a bear named Olga.",
         "What is my lucky number?", "What is my name?", "Where do I live?"],
    )
    for turns in talks:
        messages = []
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            answer, ended = speaker.say(messages, 220)
            messages.append({"role": "assistant", "content": answer})
            print(f"> {turn}\n{answer}{'' if ended else ' [cut]'}")
        print()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--model", type=pathlib.Path, required=True)
    arguments.add_argument("--misses", type=int, default=12, help="how many wrong answers to print")
    arguments.add_argument("--count", type=int, default=50, help="of sums and of tool calls")
    arguments.add_argument("--threads", type=int, default=2)
    args = arguments.parse_args()
    torch.set_num_threads(args.threads)
    speaker = Speaker(args.model)
    measure_recall(speaker, args.model / "eval" / "recall.jsonl", args.misses)
    measure_sums(speaker, args.count)
    measure_tools(speaker, args.count)
    show(speaker)


if __name__ == "__main__":
    main()
