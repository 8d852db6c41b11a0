"""Values that a fact can have: names, places, colours, numbers and plain words.

Names, places, colour pairs and numbers are composed, so that there are many more of them than the model could learn by
heart, and one in ten is held out: `Split.TRAIN` never draws it, `Split.HELD_OUT` draws nothing else.
"""

import enum
import random
import zlib

HELD_OUT_ONE_IN = 10


class Split(enum.Enum):
    TRAIN = "train"
    HELD_OUT = "held_out"


NAME_HEADS = (
    "Mar Vel Tor Lin Ka Bre Do El Fen Gar Hal Is Jo Ker Lu Mo Nor Or Pel Quin Ras Sel Tam Ul Ver Wil Yor Zan Al Be "
    "Cor Dar Ed Fa Gil Hu Il Jas Kel Lor Ni Pa Ro Sa Ti Vi"
).split()
NAME_TAILS = (
    "lo na din ric sa mon vi ra len tus mi ko dra lin ber ta wen zo nor sha ly gan fi bo rus del ma ni tor pa"
).split()
KNOWN_NAMES = (
    "Ada Alice Anna Ben Bob Carl Clara Dan Emma Eva Finn Grace Hugo Ida Jack Jane John Kate Leo Lucy Maria Mark Max "
    "Mia Nina Noah Olga Oscar Paul Peter Rosa Ruth Sam Sara Sofia Theo Tom Vera Will Zoe Marlo Rex Luna"
).split()
PLACE_HEADS = (
    "Oak Stone River Green Ash Elm Fox Gold High Iron King Lake Mill North Red Salt Sun West Wolf Raven Silver Thorn "
    "Bright Clear East South White Black Bear Winter Summer Spring Crow Deer Hill Moon Star Sand Snow Rose"
).split()
PLACE_TAILS = (
    "ton field ford haven wood ville burg dale mouth ham port bridge stead cliff brook well gate shore land crest"
).split()
KNOWN_PLACES = (
    "Paris London Berlin Rome Madrid Vienna Oslo Tokyo Lisbon Dublin Prague Athens Cairo Boston Chicago Hamburg "
    "Munich Zurich Milan Lyon"
).split()
COLOURS = (
    "red blue green yellow orange purple pink brown black white grey silver gold violet turquoise crimson".split()
)
SHADES = "dark light pale bright deep soft warm dusty".split()
ANIMALS = (
    "fox bear rabbit owl mouse cat dog horse duck frog hedgehog wolf crow turtle badger squirrel goat donkey".split()
)
FOODS = "soup bread rice pasta pizza salad cheese honey cake apples plums cherries noodles beans pancakes fish".split()
DRINKS = "tea coffee milk water juice cocoa lemonade".split()
HOBBIES = "chess painting running swimming reading cooking singing dancing sailing gardening fishing skating".split()
JOBS = "baker teacher doctor farmer painter pilot nurse gardener sailor writer carpenter singer".split()
THINGS = "car bike house hat coat boat door umbrella bag kite scarf lamp chair cup tent".split()
SEASONS = "spring summer autumn winter".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def is_held_out(value: str) -> bool:
    if value in KNOWN_NAMES or value in KNOWN_PLACES:
        return False
    return zlib.crc32(value.lower().encode()) % HELD_OUT_ONE_IN == 0


def draw(rng: random.Random, split: Split, make) -> str:
    """Draws until the value is on the wanted side of the split."""
    wanted = split is Split.HELD_OUT
    while True:
        value = make(rng)
        if is_held_out(value) == wanted:
            return value


def _composed_name(rng: random.Random) -> str:
    middle = rng.choice(NAME_TAILS) if rng.random() < 0.25 else ""
    return rng.choice(NAME_HEADS) + middle + rng.choice(NAME_TAILS)


def _wild_name(rng: random.Random) -> str:
    """Letters without much sense: they teach copying piece by piece, whatever the pieces are."""
    length = rng.randint(3, 8)
    letters = [
        rng.choice("aeiou") if (i % 2 and rng.random() < 0.8) else rng.choice("abcdefghijklmnopqrstuvwxyz")
        for i in range(length)
    ]
    return "".join(letters).capitalize()


def name(rng: random.Random, split: Split) -> str:
    if split is Split.TRAIN:
        roll = rng.random()
        if roll < 0.12:
            return rng.choice(KNOWN_NAMES)
        if roll < 0.30:
            return draw(rng, split, _wild_name)
    return draw(rng, split, _composed_name)


def place(rng: random.Random, split: Split) -> str:
    if split is Split.TRAIN:
        roll = rng.random()
        if roll < 0.10:
            return rng.choice(KNOWN_PLACES)
        if roll < 0.30:
            return draw(rng, split, _wild_name if roll < 0.15 else _composed_name)
    return draw(rng, split, lambda r: r.choice(PLACE_HEADS) + r.choice(PLACE_TAILS))


def colour(rng: random.Random, split: Split) -> str:
    if split is Split.TRAIN and rng.random() < 0.4:
        return rng.choice(COLOURS)
    return draw(rng, split, lambda r: f"{r.choice(SHADES)} {r.choice(COLOURS)}")


def number(rng: random.Random, split: Split) -> str:
    def make(r: random.Random) -> str:
        digits = r.choice((2, 3, 3, 3, 4, 4, 5))
        return str(r.randint(10 ** (digits - 1), 10**digits - 1))

    return draw(rng, split, make)


def code_word(rng: random.Random, split: Split) -> str:
    return draw(rng, split, _composed_name).lower()
