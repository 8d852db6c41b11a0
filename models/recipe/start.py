"""Starting weights with the beginnings of a copying circuit, so that training refines it rather than waits for it.

Two layers are enough to copy (Olsson et al., "In-context Learning and Induction Heads", 2022): a head of the first attends
to the token before and writes down what it was; a head of the second looks for places whose note equals the current token,
and adds the token found there to the stream. Nothing is fixed: every weight is trained afterwards.
"""

import torch

from model import Model, Shape

EMBEDDING = 0.2  # spread of an embedding; large enough to be heard beside what the layers add
CONSTANT = 3.0  # one embedding coordinate is the same for all tokens: the positional heads listen to it
FINAL_NORM = 0.15


def _directions(count: int, width: int) -> torch.Tensor:
    """[count, width], orthonormal rows that ignore the constant coordinate."""
    rows = torch.zeros(count, width)
    rows[:, 1:] = torch.linalg.qr(torch.randn(width - 1, count)).Q.T
    return rows


@torch.no_grad()
def start(model: Model) -> None:
    shape: Shape = model.shape
    d = shape.head_width
    half = d // 2
    turn = shape.rope_theta ** -(torch.arange(half).float() / half)  # radians per token, of every pair

    embedding = model.embed_tokens.weight
    embedding.normal_(std=EMBEDDING)
    embedding[:, 0] = EMBEDDING * CONSTANT
    model.norm.weight.fill_(FINAL_NORM)

    # Layer 0: heads 0 and 1 attend one and two tokens back. Their score is a sum of cos(turn * (distance - back)).
    first = model.layers[0].self_attn
    fast = turn > 0.02
    gain = 3.0
    first.k_proj.weight[:d].mul_(0.1)
    first.k_proj.weight[:half, 0] = gain * fast
    notes = []
    what = _directions(d, shape.width)
    first.v_proj.weight[:d] = what
    for head, back in ((0, 1), (1, 2)):
        query = first.q_proj.weight[head * d : (head + 1) * d]
        query.mul_(0.1)
        query[:half, 0] = gain * torch.cos(turn * back) * fast
        query[half:, 0] = -gain * torch.sin(turn * back) * fast
        note = _directions(d, shape.width)
        first.o_proj.weight[:, head * d : (head + 1) * d] = note.T * 2 * EMBEDDING
        notes.append(note)

    # Layer 1: head 0 matches "the current token" with "the token before there"; head 2 does it one token further back.
    # Only pairs that turn slowly carry the match, so that it works at any distance.
    second = model.layers[1].self_attn
    slow = torch.cat((turn < 0.0005, turn < 0.0005)).nonzero()[:, 0]
    for head, sought, seen in ((0, what, notes[0]), (2, notes[0], notes[1])):
        group = head // (shape.heads // shape.kv_heads)
        scale = 4.0 if head == 0 else 5.0
        query = second.q_proj.weight[head * d : (head + 1) * d]
        key = second.k_proj.weight[group * d : (group + 1) * d]
        query.mul_(0.1)
        key.mul_(0.1)
        query[slow] += scale * sought[: len(slow)]
        key[slow] += scale * seen[: len(slow)]
        value = _directions(d, shape.width)
        second.v_proj.weight[group * d : (group + 1) * d] = value
        second.o_proj.weight[:, head * d : (head + 1) * d] = value.T * 6 * EMBEDDING
