"""The corpus keeps its promises: seeds, the held-out split, and one chat format in Python and in the template."""

import pathlib
import random
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from corpus import sums, words  # noqa: E402
from corpus.conversation import conversation, small_conversation, tool_conversation  # noqa: E402
from corpus.facts import draw_facts  # noqa: E402
from corpus.words import Split  # noqa: E402

FOLDER = HERE.parent.parent / "baton-tiny"
COMPOSED = (words.name, words.place, words.colour, words.number, words.code_word)


@pytest.mark.parametrize("make", (conversation, tool_conversation, small_conversation))
def test_a_seed_gives_the_same_text(make):
    extra = (400,) if make is conversation else ()
    write = lambda seed: make(random.Random(seed), Split.TRAIN, *extra).parts()
    assert write(5) == write(5)
    assert write(5) != write(6)


@pytest.mark.parametrize("draw", COMPOSED)
def test_held_out_values_are_never_trained_on(draw):
    rng = random.Random(1)
    held_out = {draw(rng, Split.HELD_OUT) for _ in range(300)}
    trained = {draw(rng, Split.TRAIN) for _ in range(30_000)}
    assert not held_out & trained


def test_facts_of_one_conversation_differ_in_topic_and_value():
    facts = draw_facts(random.Random(2), Split.TRAIN, 24)
    assert len({f.topic for f in facts}) == len({f.value for f in facts}) == len(facts)
    assert all(f.value in f.answer for f in facts)


def test_reasoning_reaches_the_sum():
    for a in range(100):
        for b in range(0, 100, 7):
            assert sums.reasoning(a, b).endswith(f"The sum is {a + b}.")


@pytest.mark.parametrize("make", (lambda r: conversation(r, Split.TRAIN, 300), lambda r: tool_conversation(r, Split.TRAIN)))
def test_the_template_renders_what_the_model_was_trained_on(make):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    for seed in range(20):
        talk = make(random.Random(seed))
        last_user = max(i for i, m in enumerate(talk.messages) if m["role"] == "user")
        for message in talk.messages[:last_user]:
            message.pop("reasoning_content", None)  # the template drops what was thought in earlier turns
        messages = ([{"role": "system", "content": talk.system}] if talk.system else []) + talk.messages
        text = tokenizer.apply_chat_template(messages, tools=talk.tools or None, tokenize=False)
        assert text == "".join(part for part, _ in talk.parts())


def test_the_template_refuses_what_the_model_cannot_read():
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    render = lambda *messages, **more: tokenizer.apply_chat_template(list(messages), tokenize=False, **more)
    with pytest.raises(Exception, match="unknown role"):
        render({"role": "wizard", "content": "x"})
    with pytest.raises(Exception, match="system message must come first"):
        render({"role": "user", "content": "x"}, {"role": "system", "content": "y"})
    with pytest.raises(Exception, match="at least one message"):
        tokenizer.apply_chat_template([], tokenize=False)
    hello = {"role": "user", "content": "Hi"}
    assert render(hello, add_generation_prompt=True) == "<|begin|><|user|>Hi<|end|><|assistant|>"
    thinking = render(hello, add_generation_prompt=True, enable_thinking=True)
    assert thinking == "<|begin|><|user|>Hi<|end|><|assistant|><|think|>"
