"""Muon for the matrices, Adam for the embedding and the norms.

Muon (Jordan et al., 2024): the momentum of a matrix is replaced by a nearly orthogonal one, found by five Newton-Schulz
iterations x <- a x + (b A + c A^2) x with A = x x^T, so that every direction of a matrix learns at the same pace.
"""

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


def orthogonal(batch: torch.Tensor) -> torch.Tensor:
    """[n, rows, columns] -> the same, each matrix close to orthogonal."""
    a, b, c = COEFFICIENTS
    x = batch.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Muon(torch.optim.Optimizer):
    def __init__(self, weights, lr: float, momentum: float = 0.95, decay: float = 0.01):
        super().__init__(list(weights), {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            by_shape: dict[tuple, list] = {}
            for weight in group["params"]:
                by_shape.setdefault(tuple(weight.shape), []).append(weight)
            for shape, weights in by_shape.items():
                updates = []
                for weight in weights:
                    state = self.state[weight]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(weight)
                    state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
                    updates.append(weight.grad.lerp(state["momentum"], group["momentum"]))
                scale = max(1.0, shape[0] / shape[1]) ** 0.5
                for weight, update in zip(weights, orthogonal(torch.stack(updates))):
                    weight.mul_(1 - group["lr"] * group["decay"])
                    weight.add_(update, alpha=-group["lr"] * scale)
