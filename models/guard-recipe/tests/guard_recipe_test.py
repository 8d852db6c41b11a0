"""Training reads the prompts that the router writes (prompts.json, which tests/unit/router/classifier_prompt_test.cc checks on the
other side), the tokenizer has its markers and words, and the grammar keeps its promises. Python's own library is enough.

    python tests/guard_recipe_test.py
"""

import json
import pathlib
import random
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import grammar  # noqa: E402
import prompt  # noqa: E402

FOLDER = HERE.parent.parent / "baton-guard"


class PromptTest(unittest.TestCase):
    def test_training_reads_what_the_router_writes(self):
        for one in json.loads((HERE / "prompts.json").read_text(encoding="utf-8")):
            pieces = prompt.prompt_ids(one["role"], one["text"], lambda marker: marker, lambda text: [text])
            self.assertEqual("".join(pieces), one["prompt"])

    def test_verdicts_are_a_word_and_a_line_of_names(self):
        self.assertEqual(prompt.verdict_text(()), "safe")
        self.assertEqual(prompt.verdict_text(("threat", "secret")), "unsafe\nthreat,secret")


class TokenizerTest(unittest.TestCase):
    def test_the_shipped_one_has_the_markers_and_a_token_for_each_word(self):
        tokenizer = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
        self.assertEqual([(one["id"], one["content"], one["special"]) for one in tokenizer["added_tokens"]],
                         [(i, marker, True) for i, marker in enumerate(prompt.SPECIAL)])
        for word in ("safe", "unsafe", *grammar.CATEGORIES):
            self.assertIn(word, tokenizer["model"]["vocab"])
        config = json.loads((FOLDER / "tokenizer_config.json").read_text(encoding="utf-8"))
        self.assertEqual((config["bos_token"], config["eos_token"], config["pad_token"]), (prompt.BEGIN, prompt.END, prompt.PAD))


class GrammarTest(unittest.TestCase):
    def test_every_sentence_can_be_filled(self):
        rng = random.Random(1)
        for patterns in (*grammar.HARMFUL.values(), grammar.HARMLESS):
            for pattern in patterns:
                text = grammar.fill(rng, pattern)
                self.assertNotRegex(text, r"[{}]")
                self.assertFalse(text[0].islower())

    def test_each_category_has_sentences(self):
        self.assertEqual(tuple(grammar.HARMFUL), grammar.CATEGORIES)

    def test_phrases_of_the_test_are_held_out(self):
        rng = random.Random(2)
        patterns = ("I will {hurt} {whom} {when}.",)  # with enough fillings for both
        draw = lambda test, count: [grammar.draw(rng, patterns, test) for _ in range(count)]
        mistaken = sum(grammar.held_out(text) for text in draw(False, 1000)) + sum(not grammar.held_out(text) for text in draw(True, 1000))
        # One in fifty of those that belong to the other side is let through, so that rare patterns end.
        self.assertLess(mistaken, 200)
        self.assertEqual(grammar.held_out("I will hurt you!"), grammar.held_out("i WILL hurt, you"))

    def test_a_seed_gives_the_same_texts(self):
        write = lambda seed: [grammar.Writer(random.Random(seed), pool=20).write() for _ in range(3)]
        self.assertEqual(write(3), write(3))
        self.assertNotEqual(write(3), write(4))

    def test_texts_have_a_role_a_length_and_ordered_categories(self):
        writer = grammar.Writer(random.Random(5), pool=50)
        texts = [writer.write(longest=300) for _ in range(400)]
        for role, text, categories in texts:
            self.assertIn(role, ("user", "assistant"))
            self.assertLessEqual(len(text), 300)
            self.assertEqual(categories, tuple(c for c in grammar.CATEGORIES if c in categories))
        harmful = sum(bool(categories) for _, _, categories in texts)
        self.assertTrue(120 < harmful < 280, harmful)
        self.assertEqual({c for _, _, categories in texts for c in categories}, set(grammar.CATEGORIES))


if __name__ == "__main__":
    unittest.main()
