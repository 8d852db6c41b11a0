"""Writes the folder of a model that plays a part: what it answers is written in advance, and its chat template decides which answer a conversation gets.

The next token depends on the last one alone: attention and MLP are zero, each piece of the script is a token of its own, the embedding of a piece is one-hot, and the row of the output matrix that
belongs to the next piece has its one number in that place. So the chain holds at temperature 1, too: everything else has a chance of about exp(-LOGIT). The template writes the token that begins a
chain at the end of the prompt, and before each earlier answer, so that a later turn's prompt begins with an earlier one's. Tokenizer and format of calls are those of models/baton-tiny."""
import dataclasses
import json
import pathlib
import struct

TINY = pathlib.Path(__file__).resolve().parents[2] / "models" / "baton-tiny"
CONTEXT = 65536
LOGIT = 60
HEAD = 32


@dataclasses.dataclass(frozen=True)
class Step:
    """An answer, from a message on that has this role and text, until a later message has those of another step. With `tool` it holds only where the request offers a tool of that name."""

    role: str
    has: str
    says: str
    tool: str | None = None


def call(name, arguments, thought=""):
    """An answer that calls a tool, as the template writes it."""
    thinking = f"<think>\n{thought}\n</think>\n\n" if thought else ""
    return f'{thinking}<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def pieces(text, used, size=8):
    """The text in pieces that differ from each other and from those in `used`, which gets them."""
    parts, start = [], 0
    while start < len(text):
        end = min(start + size, len(text))
        while text[start:end] in used and end < len(text):
            end += 1
        while text[start:end] in used:  # The text ends here, so its end joins the piece before.
            if not parts:
                raise ValueError(f"another answer has a piece that is all of this one: {text!r}")
            start -= len(parts[-1])
            used.remove(parts.pop())
        parts.append(text[start:end])
        used.add(text[start:end])
        start = end
    return parts


def spelled(text):
    """ASCII as a tokenizer of bytes has it in its vocabulary."""
    if not text.isascii() or any(ord(letter) < 32 and letter != "\n" for letter in text):
        raise ValueError(f"answers have to be of plain ASCII: {text!r}")
    return text.replace(" ", "\u0120").replace("\n", "\u010a")


def template(begins):
    """The chat template, for pairs of a step and the token that begins its answer; that of the first is said where no other holds."""
    rules, word = "", "if"
    for step, token in begins[1:]:
        asked = f"message.role == {json.dumps(step.role)} and {json.dumps(step.has)} in words"
        if step.tool:
            asked += f" and {json.dumps(f'[{step.tool}]')} in offered.names"
        rules += f"    {{%- {word} {asked} -%}}\n        {{%- set state.step = {json.dumps(token)} -%}}\n"
        word = "elif"
    return TEMPLATE.replace("BEGIN", json.dumps(begins[0][1])).replace("RULES\n", f"{rules}    {{%- endif -%}}\n")


def write(folder, steps, otherwise="Nothing is written for this."):
    """Writes the model. `otherwise` is what it says where no step holds."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads((TINY / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first = len(vocabulary)
    # Markers of calls and of thinking are spelled, in pieces like all else.
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["id"] < first]
    begins = [(step, f"<|step_{number}|>") for number, step in enumerate([Step("", "", otherwise), *steps])]  # special tokens
    used, follows = set(vocabulary), {}
    for step, begin in begins:
        vocabulary[begin] = last = len(vocabulary)
        tokenizer["added_tokens"].append({"id": last, "content": begin, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True})
        # No merge makes a piece, so that no prompt has it.
        for piece in pieces(spelled(step.says), used):
            vocabulary[piece] = follows[last] = len(vocabulary)
            last = follows[last]
        follows[last] = vocabulary["<|end|>"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").write_text(template(begins))

    size = len(vocabulary)
    hidden = -(-(size - first + 1) // HEAD) * HEAD
    config = json.loads((TINY / "config.json").read_text())
    config |= {"vocab_size": size, "hidden_size": hidden, "intermediate_size": HEAD, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": HEAD}
    config |= {"max_position_embeddings": CONTEXT, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    settings = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")} | {"do_sample": True, "temperature": 1.0}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    tokens = json.loads((TINY / "tokenizer_config.json").read_text()) | {"model_max_length": CONTEXT}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))

    # Place 0 is that of all tokens which are no piece; after them comes the end. The norm makes the one number of a row sqrt(hidden).
    def matrix(rows, columns, values):
        data = bytearray(2 * rows * columns)
        for row, column, value in values:
            at = 2 * (row * columns + column)
            data[at : at + 2] = bf16(value)
        return [rows, columns], bytes(data)

    def place(token):
        return max(0, token - first + 1)

    height = LOGIT / hidden**0.5
    tensors = {
        "model.embed_tokens.weight": matrix(size, hidden, ((token, place(token), 1) for token in range(size))),
        "lm_head.weight": matrix(size, hidden, [(vocabulary["<|end|>"], 0, height), *((then, place(token), height) for token, then in follows.items())]),
        "model.norm.weight": ([hidden], bf16(1) * hidden),
    }
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors[f"model.layers.0.{name}.weight"] = ([hidden], bf16(1) * hidden)
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"):
        tensors[f"model.layers.0.{name}.weight"] = matrix(HEAD, hidden, ())
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"model.layers.0.{name}.weight"] = matrix(hidden, HEAD, ())
    save(folder / "model.safetensors", tensors)


def bf16(value):
    return struct.pack("<f", value)[2:]


def save(path, tensors):
    """The format of safetensors: the header's length, the header as JSON, and the values."""
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


# A system's message may stand anywhere, and nothing that is written once changes later.
TEMPLATE = """\
{%- macro text(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is defined and content is not none -%}
        {%- for part in content -%}
            {{- part.text -}}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- set state = namespace(step=BEGIN) -%}
{%- set offered = namespace(names='') -%}
{{- '<|begin|>' -}}
{%- if tools -%}
    {{- '<|system|>Tools:' -}}
    {%- for tool in tools -%}
        {{- '\\n' -}}
        {{- tool | tojson -}}
        {%- set offered.names = offered.names ~ '[' ~ (tool.function.name if tool.function is defined else tool.name) ~ ']' -%}
    {%- endfor -%}
    {{- '<|end|>' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set words = text(message.content) -%}
    {%- if message.role == 'assistant' -%}
        {{- '<|assistant|>' ~ state.step -}}
        {%- if message.reasoning_content -%}
            {{- '<think>\\n' ~ message.reasoning_content ~ '\\n</think>\\n\\n' -}}
        {%- endif -%}
        {{- words -}}
        {%- for tool_call in message.tool_calls or [] -%}
            {%- set call = tool_call.function if tool_call.function is defined else tool_call -%}
            {{- '' if loop.first else '\\n' -}}
            {{- '<tool_call>\\n{"name": "' ~ call.name ~ '", "arguments": ' -}}
            {{- call.arguments if call.arguments is string else call.arguments | tojson -}}
            {{- '}\\n</tool_call>' -}}
        {%- endfor -%}
    {%- else -%}
        {{- '<|' ~ message.role ~ '|>' ~ words -}}
    {%- endif -%}
    {{- '<|end|>' -}}
RULES
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>' ~ state.step -}}
{%- endif -%}
"""
