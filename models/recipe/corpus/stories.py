"""Short stories from a grammar. A story keeps to its hero, its place and its thing, so questions about it have answers."""

import dataclasses
import random

from . import words
from .words import Split

_OPENINGS = (
    "Once upon a time there was a {mood} {animal} named {hero}.", "There once was a {mood} {animal} named {hero}.",
    "Long ago there lived a {mood} {animal} named {hero}.",
)
_HOMES = ("{hero} lived in {place}.", "{hero} lived near {place}.", "{hero} had a small house in {place}.")
_EVENTS = (
    "One {time} {hero} found a {colour} {thing} by the {spot}.",
    "One {time} {hero} saw a {colour} {thing} near the {spot}.",
    "One {time} a {colour} {thing} lay beside the {spot}.",
)
_FEELINGS = ("{hero} was very happy.", "{hero} was surprised.", "{hero} smiled.", "{hero} did not know what to do.")
_MEETINGS = (
    "Then {hero} met a {animal2} named {friend}.", "On the way home {hero} met {friend} the {animal2}.",
    "Soon a {animal2} named {friend} came along.",
)
_SPEECHES = (
    '"That is my {thing}," said {friend}.', '"What a fine {thing}," said {friend}.',
    '"I have been looking for that {thing}," said {friend}.',
)
_DEEDS = (
    "{hero} gave the {thing} to {friend}.", "They took the {thing} home together.",
    "They shared the {thing} like good friends.", "{hero} let {friend} have the {thing}.",
)
_WALKS = (
    "They walked to the {spot2} and looked at the {sky}.", "Together they went to the {spot2}.",
    "They sat by the {spot2} until the {sky} came out.", "It was a long way to the {spot2}, but they did not mind.",
    "They ate {food} and told each other stories.", "After that they played by the {spot2}.",
    "The wind was cold, so they made a fire and ate {food}.", "They sang a song and looked at the {sky}.",
)
_ENDINGS = (
    "From that day on {hero} and {friend} were friends.", "{hero} and {friend} lived happily ever after.",
    "And that is how {hero} and {friend} became friends.",
)
_MOODS = "small brave kind old young clever lonely happy quiet curious".split()
_TIMES = "day morning evening night".split()
_SPOTS = "river lake hill forest bridge mill garden road well old tree".replace("old tree", "tree").split()
_OBJECTS = "lantern key box ball bell book stone ring hat basket boat feather coin map cup".split()
_SKIES = "stars,moon,sun,clouds".split(",")


@dataclasses.dataclass(frozen=True)
class Story:
    text: str
    hero: str
    animal: str
    place: str
    thing: str
    colour: str
    friend: str

    def questions(self) -> list[tuple[str, str]]:
        return [
            (f"What was the {self.animal} named?", f"The {self.animal} was named {self.hero}."),
            (f"Where did {self.hero} live?", f"{self.hero} lived in {self.place}."),
            (f"What colour was the {self.thing}?", f"The {self.thing} was {self.colour}."),
            (f"What was the name of the {self.animal}?", f"The {self.animal} was named {self.hero}."),
            (f"Who was {self.hero}'s friend?", f"{self.hero}'s friend was {self.friend}."),
        ]


def tell(rng: random.Random, split: Split, animal: str | None = None, hero: str | None = None, walks: int = 1) -> Story:
    """One story; `walks` more sentences make it longer."""
    animal = animal or rng.choice(words.ANIMALS)
    hero = hero or words.name(rng, split)
    friend = words.name(rng, split)
    while friend == hero:
        friend = words.name(rng, split)
    parts = {
        "animal": animal, "hero": hero, "friend": friend, "mood": rng.choice(_MOODS), "place": words.place(rng, split),
        "time": rng.choice(_TIMES), "colour": rng.choice(words.COLOURS), "thing": rng.choice(_OBJECTS),
        "spot": rng.choice(_SPOTS), "animal2": rng.choice([a for a in words.ANIMALS if a != animal]),
    }
    lines = [rng.choice(_OPENINGS), rng.choice(_HOMES), rng.choice(_EVENTS), rng.choice(_FEELINGS),
             rng.choice(_MEETINGS), rng.choice(_SPEECHES), rng.choice(_DEEDS)]
    sentences = [line.format(**parts) for line in lines]
    for line in rng.sample(_WALKS, min(walks, len(_WALKS))):
        sentences.append(line.format(
            spot2=rng.choice(_SPOTS), sky=rng.choice(_SKIES), food=rng.choice(words.FOODS), **parts))
    sentences.append(rng.choice(_ENDINGS).format(**parts))
    return Story(" ".join(sentences), hero, animal, parts["place"], parts["thing"], parts["colour"], friend)
