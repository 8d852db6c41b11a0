"""What the classifier reads and writes, as text: the Python twin of ../baton-guard/chat_template.jinja."""

PAD, BEGIN, END, USER, ASSISTANT, VERDICT = "<|pad|>", "<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|verdict|>"
SPECIAL = (PAD, BEGIN, END, USER, ASSISTANT, VERDICT)


def verdict_text(categories: tuple[str, ...]) -> str:
    return "unsafe\n" + ",".join(categories) if categories else "safe"


def prompt_ids(role: str, text: str, id_of, ids_of) -> list:
    """What the classifier reads. id_of: a special token's id; ids_of: the ids of a text, without special tokens."""
    return [id_of(BEGIN), id_of(USER if role == "user" else ASSISTANT), *ids_of(text), id_of(END), id_of(VERDICT)]
