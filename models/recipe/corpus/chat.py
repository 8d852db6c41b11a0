"""Messages as text. This is the Python twin of `chat_template.jinja`; a test holds the two together."""

import json

BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
SYSTEM, USER, ASSISTANT, TOOL, THINK = "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|think|>"
SPECIAL = (PAD, BEGIN, END, SYSTEM, USER, ASSISTANT, TOOL, THINK)
VISIBLE = ("<think>", "</think>", "<tool_call>", "</tool_call>")


def system_text(content: str, tools: list[dict] | None) -> str:
    if not tools:
        return SYSTEM + content + END
    lines = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
    return SYSTEM + (content + "\n\n" if content else "") + "Tools:" + lines + END


def call_text(call: dict) -> str:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {arguments}}}\n</tool_call>'


def assistant_text(content: str, reasoning: str = "", calls: list[dict] | None = None) -> str:
    thought = f"{THINK}<think>\n{reasoning}\n</think>\n\n" if reasoning else ""
    return ASSISTANT + thought + content + "\n".join(call_text(call) for call in calls or []) + END


def message_text(message: dict) -> str:
    """One message other than the system's."""
    if message["role"] == "user":
        return USER + message["content"] + END
    if message["role"] == "tool":
        return TOOL + message["content"] + END
    return assistant_text(message.get("content") or "", message.get("reasoning_content", ""), message.get("tool_calls"))
