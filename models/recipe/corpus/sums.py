"""Small sums, and the same sums worked out digit by digit for the thinking format."""

import random

_ASK = ("What is {a} + {b}?", "What is {a} plus {b}?", "Add {a} and {b}.", "{a} + {b} = ?", "How much is {a} + {b}?",
        "Can you add {a} and {b}?")


def draw(rng: random.Random) -> tuple[int, int]:
    if rng.random() < 0.35:
        return rng.randint(0, 9), rng.randint(0, 9)
    return rng.randint(0, 99), rng.randint(0, 99)


def question(rng: random.Random, a: int, b: int) -> str:
    return rng.choice(_ASK).format(a=a, b=b)


def answer(a: int, b: int) -> str:
    return f"{a} + {b} = {a + b}."


def reasoning(a: int, b: int) -> str:
    """From the ones upwards, as on paper."""
    if a < 10 and b < 10:
        return f"I add {a} and {b}. The sum is {a + b}."
    ones = a % 10 + b % 10
    carry = ones // 10
    tens = a // 10 + b // 10 + carry
    return (
        f"I add {a} and {b}. Ones: {a % 10} + {b % 10} = {ones}, carry {carry}. "
        f"Tens: {a // 10} + {b // 10} + {carry} = {tens}. The sum is {a + b}."
    )
