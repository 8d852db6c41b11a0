"""Conversations rendered by transformers, byte for byte what ours must be.

    pip install transformers==5.23.0 jinja2==3.1.6
    python tests/golden/text/make_chats.py

Reads templates/*.jinja (our own, in the styles of well-known families) and writes chats.json; reads the shipped model's
folder and writes shipped.json.
"""

import json
import pathlib

import jinja2
from transformers import AutoTokenizer, PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Weather at a place, today or on a "day"',
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Stadt, 都市, <city> & 'so on'"},
                "days": {"type": "integer", "minimum": 1, "default": 3},
                "scale": {"type": "number", "default": 1.0, "enum": [1.0, 0.5, 1e-7]},
            },
            "required": ["place"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {"name": "now", "description": "The time", "parameters": {"type": "object", "properties": {}}},
}

SYSTEM = {"role": "system", "content": "  Be brief.\n"}
HELLO = {"role": "user", "content": "Hi there! 🙂 <|end|> {{ not a template }}"}
ANSWER = {"role": "assistant", "content": " Hello.\n\n"}
MORE = {"role": "user", "content": "Wie ist das Wetter in Köln?"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "abcdef123",
            "type": "function",
            "function": {"name": "get_weather", "arguments": {"place": "Köln", "days": 2, "exact": True, "scale": 0.1}},
        }
    ],
}
TWO_CALLS = {
    "role": "assistant",
    "content": "Both.",
    "tool_calls": CALL["tool_calls"]
    + [{"id": "abcdef124", "type": "function", "function": {"name": "now", "arguments": {}}}],
}
RESULT = {"role": "tool", "tool_call_id": "abcdef123", "content": '{"sky": "klar"}'}
THOUGHT = {"role": "assistant", "reasoning_content": "\nThey want\nweather.\n", "content": "\nSunny."}
INLINE_THOUGHT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}

CHATS = [
    ("llama3_style", dict(messages=[HELLO])),
    ("llama3_style", dict(messages=[SYSTEM, HELLO, ANSWER, MORE], add_generation_prompt=True, day="26 Jul 2024")),
    ("llama3_style", dict(messages=[SYSTEM, MORE, CALL, RESULT], tools=[WEATHER, CLOCK], add_generation_prompt=True)),
    ("llama3_style", dict(messages=[SYSTEM], tools=[WEATHER])),
    ("llama3_style", dict(messages=[HELLO, TWO_CALLS])),
    ("qwen_style", dict(messages=[HELLO], add_generation_prompt=True, enable_thinking=False)),
    ("qwen_style", dict(messages=[SYSTEM, HELLO, INLINE_THOUGHT, MORE], add_generation_prompt=True)),
    ("qwen_style", dict(messages=[SYSTEM, MORE, TWO_CALLS, RESULT, RESULT, THOUGHT], tools=[WEATHER, CLOCK])),
    ("qwen_style", dict(messages=[HELLO, INLINE_THOUGHT])),
    (
        "qwen_style",
        dict(
            messages=[
                HELLO,
                {"role": "assistant", "content": "a", "reasoning": "b"},
                MORE,
                {"role": "assistant", "content": "c", "thinking": "d"},
            ]
        ),
    ),
    ("mistral_style", dict(messages=[SYSTEM, HELLO, ANSWER, MORE])),
    ("mistral_style", dict(messages=[HELLO, ANSWER, MORE, CALL, RESULT], tools=[WEATHER, CLOCK])),
    ("mistral_style", dict(messages=[HELLO, MORE])),
    (
        "mistral_style",
        dict(
            messages=[
                HELLO,
                {"role": "assistant", "content": "x"},
                {"role": "user", "content": "x"},
                {"role": "wizard", "content": "x"},
            ]
        ),
    ),
    ("kinds", dict(messages=[HELLO])),
    ("kinds", dict(messages=[HELLO], tools=[WEATHER, CLOCK])),
    (
        "features",
        dict(
            messages=[HELLO, ANSWER],
            extra={
                "int": 1,
                "big": 12345678901234567890,
                "neg": -3,
                "float": 1.5,
                "whole": 2.0,
                "tiny": 1.5e-9,
                "huge": 1e22,
                "null": None,
                "yes": True,
                "text": 'é "q" \\ / \t\n\u0001\u007f 🙂 </script>',
                "list": [1, [2, []], {}],
                "dict": {"z": 1, "a": {"k": "v"}},
            },
        ),
    ),
]


SHIPPED = [
    dict(messages=[HELLO], add_generation_prompt=True),
    dict(messages=[SYSTEM, HELLO, ANSWER, MORE], add_generation_prompt=True, enable_thinking=True),
    dict(
        messages=[SYSTEM, MORE, TWO_CALLS, RESULT, RESULT, THOUGHT, MORE],
        tools=[WEATHER, CLOCK],
        add_generation_prompt=True,
    ),
    dict(messages=[MORE, CALL, RESULT, THOUGHT], tools=[CLOCK]),
    dict(
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "My name is "}, {"type": "text", "text": "Ada.  "}]}
        ]
    ),
]


def write(name, cases):
    (HERE / name).write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


def shipped():
    tokenizer = AutoTokenizer.from_pretrained(HERE.parents[2] / "models" / "baton-tiny")
    cases = []
    for arguments in SHIPPED:
        text = tokenizer.apply_chat_template(
            tokenize=False,
            conversation=arguments["messages"],
            **{k: v for k, v in arguments.items() if k != "messages"},
        )
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        cases.append(
            {
                "variables": arguments,
                "text": text,
                "ids": ids,
                "decoded": tokenizer.decode(ids, skip_special_tokens=True),
            }
        )
    write("shipped.json", cases)


def main():
    cases = []
    for name, arguments in CHATS:
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_file=str(HERE / "tokenizers" / "llama3_like" / "tokenizer.json"),
            bos_token="<s>",
            eos_token="</s>",
        )
        tokenizer.chat_template = (HERE / "templates" / f"{name}.jinja").read_text()
        case = {"template": name, "variables": arguments}
        arguments = dict(arguments)
        messages = arguments.pop("messages")
        try:
            case["text"] = tokenizer.apply_chat_template(messages, tokenize=False, **arguments)
        except jinja2.exceptions.TemplateError as error:
            case["error"] = str(error)
        cases.append(case)
    write("chats.json", cases)
    shipped()


if __name__ == "__main__":
    main()
