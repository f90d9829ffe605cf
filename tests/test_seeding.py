"""One seed tree: branches differ, repeat, and leave everyone else's random numbers alone."""

from __future__ import annotations

import itertools

import pytest
import torch

from pytorchrl.seeding import KINDS, LARGEST_SEED, derived_seed, own_generator, seeded


def test_branches_repeat_and_differ() -> None:
    places = [(), (0,), (1,), (0, 0), (0, 1), (1, 0)]
    branches = list(itertools.product((0, 1, LARGEST_SEED), KINDS, places))
    seeds = [derived_seed(seed, kind, *indices) for seed, kind, indices in branches]
    assert seeds == [derived_seed(seed, kind, *indices) for seed, kind, indices in branches]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed <= LARGEST_SEED for seed in seeds)
    # Environments take 32 bits of them.
    assert len({seed % 2**32 for seed in seeds}) == len(seeds)


def test_a_seed_means_the_same_for_ever() -> None:
    """Changing these numbers changes every published run."""
    assert derived_seed(1, "model") == 4215923173971654960
    assert derived_seed(1, "train_env", 3) == 8183369593061002834
    assert [KINDS[kind] for kind in ("model", "acting", "storage", "train_env", "test_env", "episodes")] == list(
        range(6)
    )


def test_an_unknown_branch_is_an_error() -> None:
    with pytest.raises(KeyError):
        derived_seed(1, "weather")


def test_seeded_is_over_when_it_is_left() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with seeded(1):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with seeded(1):
        assert torch.equal(torch.rand(3), inside)
    before = torch.get_rng_state()

    def fail() -> None:
        with seeded(2):
            torch.rand(1)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert torch.equal(torch.get_rng_state(), before)


def test_own_generators_follow_the_seed_and_then_go_their_own_way() -> None:
    def two() -> tuple[torch.Generator, torch.Generator]:
        with seeded(3):
            return own_generator(), own_generator()

    (one, other), (again, _) = two(), two()
    first = torch.rand(4, generator=one)
    assert torch.equal(first, torch.rand(4, generator=again))
    assert not torch.equal(first, torch.rand(4, generator=other))
    torch.rand(100)
    assert torch.equal(torch.rand(4, generator=one), torch.rand(4, generator=again))
