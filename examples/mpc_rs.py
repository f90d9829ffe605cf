"""Random shooting by hand, with dynamics that are known: nothing is learned, a point is steered to the middle.

Run: python examples/mpc_rs.py
"""

import torch
from gymnasium.spaces import Box
from torch import Tensor

from pytorchrl.agent.actors import ModelBasedPlannerActor, WorldModel


class Point(WorldModel):
    """An action moves the point by a tenth of itself; near the middle is good."""

    fitted = True

    def step(self, obs: Tensor, action: Tensor, layers: object, generator: object) -> tuple[Tensor, Tensor, Tensor]:
        following = obs + 0.1 * action
        reward = -following.square().sum(-1, keepdim=True)
        return following, reward, torch.zeros_like(reward)


def main(steps: int = 12, seed: int = 1) -> float:
    """Steer for that many steps; returns how far from the middle the point is then."""
    space = Box(-1.0, 1.0, (2,))
    torch.manual_seed(seed)  # the actor's own generator is seeded from here
    actor = ModelBasedPlannerActor("cpu", space, space, "MPC_RS", 5, 500, world_model_class=Point)
    place, plan, begins = torch.tensor([[0.6, -0.5]]), actor.initial_rhs(1), torch.ones(1, 1)
    for number in range(steps):
        action, plan, _ = actor.plan(place, plan, begins)
        place, begins = place + 0.1 * action, torch.zeros(1, 1)
        print(f"step {number + 1:2}: {place[0, 0]:+.2f} {place[0, 1]:+.2f}")
    return float(place.norm())


if __name__ == "__main__":
    print(f"distance from the middle: {main():.2f}")
