"""What the classifier reads and writes, as text: the Python twin of ../baton-guard/chat_template.jinja."""

PAD, BEGIN, END, USER, ASSISTANT, VERDICT = "<|pad|>", "<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|verdict|>"
SPECIAL = (PAD, BEGIN, END, USER, ASSISTANT, VERDICT)


def verdict_text(categories: tuple[str, ...]) -> str:
    return "unsafe\n" + ",".join(categories) if categories else "safe"
