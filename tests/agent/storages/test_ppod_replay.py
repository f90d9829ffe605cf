"""What the replay of demonstrations leaves in a rollout, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.agent.storages.demo_world import LENGTH, buffer, live, save, scheme, step

from pytorchrl.agent.storages.demos import MAX_VALUE
from pytorchrl.keys import ACT, DONE, DONE2, LOGP, OBS, OBS2, RET, REW, RHS, RHS2, TERMINAL, VAL


def test_stacks_are_rebuilt_from_single_frames(tmp_path: Path) -> None:
    """ρ = 1 and one demo of frames a b c d e: aa ab bc cd de, and aa again."""
    frames = np.arange(1, 6, dtype=np.uint8).reshape(5, 1, 1, 1)
    save(tmp_path, Observation=frames, Action=np.arange(5), Reward=np.arange(5.0))
    space = spaces.Box(0, 255, (2, 1, 1), np.uint8)
    envs = SimpleNamespace(
        num_envs=1, observation_space=space, action_space=spaces.Discrete(5), env_kwargs={"frame_stack": 2}
    )
    storage = buffer(size=12, envs=envs, rho=1.0, phi=0.0, initial_human_demos_dir=str(tmp_path))
    waiting = torch.full((1, 2, 1, 1), 200, dtype=torch.uint8)
    rhs, done = {"policy": torch.zeros(1, 1)}, torch.ones(1, 1)
    obs: Any = waiting
    for t in range(8):
        end = torch.tensor([[float(t == 1)]])
        sample = step([0]) | {OBS: obs, OBS2: waiting, DONE: done, DONE2: end}
        storage.insert_transition(sample)
        obs, rhs, done = storage.next_inputs(waiting, rhs, end)
        assert storage.replaying.tolist() == [t > 0]
    rows = next(storage.generate_batches(1, None, shuffle=False))
    stacks = rows[OBS].flatten(1).tolist()
    assert rows[OBS].dtype == torch.uint8
    assert stacks == [[200, 200]] * 2 + [[1, 1], [1, 2], [2, 3], [3, 4], [4, 5], [1, 1]]
    assert rows[DONE].flatten().tolist() == [1, 0, 1, 0, 0, 0, 0, 1]
    assert rows[ACT].flatten().tolist() == [3, 3, 0, 1, 2, 3, 4, 0]
    assert rows[REW].flatten().tolist() == [0, 0, 0, 1, 2, 3, 4, 0]
    assert rows[LOGP].flatten().tolist() == [-1, -1, 0, 0, 0, 0, 0, 0]
    assert rows[TERMINAL].flatten().tolist() == [0, 1, 0, 0, 0, 0, 1, 0]
    assert storage.data[OBS][8].flatten().tolist() == [1, 2]  # what the bootstrap is predicted on
    assert storage.reward_demos == storage.reward_demos[:1]  # what is replayed is no new demo


@pytest.mark.parametrize("backend", ["sync", "async"])
@pytest.mark.parametrize("num_envs", [1, 8])
@pytest.mark.parametrize("recurrent", [False, True])
def test_every_row_is_what_was_acted_on(num_envs: int, backend: str, recurrent: bool, tmp_path: Path) -> None:
    """Real episodes follow one another without a gap, each whole; between them demos, each whole."""
    if backend == "async" and (recurrent or num_envs == 1):
        pytest.skip("processes are tried once")
    save(tmp_path)
    demos = {"initial_human_demos_dir": str(tmp_path), "rho": 0.5, "phi": 0.0}
    agent = scheme(num_envs, 20, backend=backend, recurrent=recurrent, **demos)
    storage: Any = agent.storage
    history: list[list[dict[str, float]]] = [[] for _ in range(num_envs)]
    steps = 0
    for _ in range(6):
        made, _ = agent.collector.collect(20)
        steps += made
        storage.before_gradients()
        keys = (OBS, ACT, REW, DONE, LOGP, TERMINAL, VAL, RET)
        data = {key: storage.data[key][:20] for key in keys}
        with torch.no_grad():  # the stored state is the one that the values were predicted from
            rhs = {key: state[0].clone() for key, state in storage.data[RHS].items()}
            flat = {key: value.flatten(0, 1) for key, value in data.items()}
            _, values, _ = agent.actor(flat[OBS], rhs, flat[DONE])
        if recurrent:
            torch.testing.assert_close(values["value_net1"], flat[VAL], rtol=1e-4, atol=1e-5)
        for n in range(num_envs):
            for t in range(20):
                row = {key: data[key][t, n].tolist() for key in data}
                history[n].append({key: value[0] for key, value in row.items() if key != OBS} | {"obs": row[OBS]})
        storage.after_gradients({}, {})
    agent.close()
    real = 0
    for rows in history:
        episode, t, kind = 0, 0, "real"
        for row in rows:
            if row[DONE]:
                t, kind = 0, "demo" if row["obs"][0] < 0 else "real"
                episode += kind == "real"
            real += kind == "real"
            assert row["obs"] == ([-1, t] if kind == "demo" else [episode, t])
            last = t == (3 if kind == "demo" else LENGTH - 1)
            assert row[TERMINAL] == last
            if kind == "demo":
                assert (row[ACT], row[REW], row[LOGP]) == (t + 1, float(last), 0)
                assert row[RET] == pytest.approx(1.0, abs=1e-5) if last else True
            else:
                assert row[LOGP] < 0
            t += 1
        assert any(row["obs"][0] < 0 for row in rows)
    assert real == steps  # NumberSamples counts real steps


def test_steps_of_demos_are_no_environment_steps(tmp_path: Path) -> None:
    save(tmp_path)
    demos = {"initial_human_demos_dir": str(tmp_path), "rho": 0.6, "phi": 0.0, "total_buffer_demo_capacity": 500}
    agent = scheme(2, 30, env={"pay": 1.0}, **demos)
    storage: Any = agent.storage
    total, episodes = 0, 0
    for _ in range(4):
        result = agent.step()
        assert result.env_steps + result.losses["DemoSamples"].item() == 60
        assert [offset for offset, _ in result.episodes] == sorted(offset for offset, _ in result.episodes)
        assert all(episode.length == LENGTH and episode.ret == 1.0 for _, episode in result.episodes)
        assert result.episodes[-1][0] <= result.env_steps
        total += result.env_steps
        episodes += len(result.episodes)
        # Every real episode becomes a demo, and no replayed one does: they are not followed.
        assert len(storage.reward_demos) == 1 + episodes
        assert all(demo["DemoLength"] == LENGTH for demo in storage.reward_demos[1:])
        followed = [start is not None for start in storage.get_state()["episodes"]["starts"]]
        assert followed == (~storage.replaying).tolist()
    assert 0 < total < 240
    assert {"RewardDemos", "ValueDemos", "Rho", "Phi", "RewardThreshold", "DemoSamples"} <= set(result.losses)
    assert result.losses["RewardDemos"].item() == len(storage.reward_demos)


def test_a_value_demo_is_worth_what_its_replay_showed() -> None:
    storage = buffer(rho=0.0, phi=1.0)
    rhs, done = {"policy": torch.zeros(1, 1)}, torch.ones(1, 1)
    live(storage, [0.0, 0.0], [5.0, 6.0])
    obs, _, _ = storage.next_inputs(torch.zeros(1, 2), rhs, done)
    for t, value in enumerate((2.0, 1.0)):
        assert obs.tolist() == [[0, t]]
        storage.insert_transition(step(obs[0], value=value))
        obs, _, _ = storage.next_inputs(torch.zeros(1, 2), rhs, torch.zeros(1, 1))
    assert [demo[MAX_VALUE] for demo in storage.value_demos] == [2.0]


def test_dict_observations(tmp_path: Path) -> None:
    parts = np.stack([np.full(4, -1.0), np.arange(4.0)], axis=1)
    save(tmp_path, **{"Observation": None, "Observation/a": parts, "Observation/b": -parts})
    demos = {"initial_human_demos_dir": str(tmp_path), "rho": 0.5, "phi": 0.0}
    agent = scheme(2, 32, env={"as_dict": True, "pay": 2.0}, **demos)
    agent.collector.collect(32)
    storage: Any = agent.storage
    rows = next(iter([storage.data[OBS]]))
    assert torch.equal(rows["a"][:32], -rows["b"][:32])
    assert (rows["a"][:32, :, 0] == -1).any()
    assert storage.reward_demos[-1][OBS]["b"].shape == (LENGTH, 2)


def test_samples_are_neither_changed_nor_kept(tmp_path: Path) -> None:
    save(tmp_path)
    storage = buffer(rho=1.0, phi=0.0, initial_human_demos_dir=str(tmp_path))
    live(storage, [0.0])
    obs, rhs, done = torch.zeros(1, 2), {"policy": torch.ones(1, 1)}, torch.ones(1, 1)
    inputs = storage.next_inputs(obs, rhs, done)
    assert inputs[0].tolist() == [[-1, 0]]
    assert (inputs[1]["policy"].item(), inputs[2].item()) == (0, 1)
    assert (obs.tolist(), rhs["policy"].item(), done.item()) == ([[0, 0]], 1, 1)
    sample = step(inputs[0][0], reward=7.0)
    before = {key: value.clone() for key, value in sample.items() if torch.is_tensor(value)}
    storage.insert_transition(sample)
    assert all(torch.equal(sample[key], value) for key, value in before.items())


def test_what_environments_say_meanwhile_does_not_matter(tmp_path: Path) -> None:
    """A loop by hand that steps all of them all the same."""
    save(tmp_path)
    storage = buffer(rho=1.0, phi=0.0, initial_human_demos_dir=str(tmp_path))
    live(storage, [0.0])
    rhs, ended = {"policy": torch.zeros(1, 1)}, torch.ones(1, 1)
    found = []
    for _ in range(5):
        obs, _, done = storage.next_inputs(torch.full((1, 2), 9.0), rhs, ended)
        found.append((*obs[0].tolist(), done.item()))
        storage.insert_transition(step(obs[0], reward=5.0, end=True, start=bool(done)))
    assert found == [(-1, 0, 1), (-1, 1, 0), (-1, 2, 0), (-1, 3, 0), (-1, 0, 1)]
    assert len(storage.reward_demos) == 1


def test_episodes_that_are_cut_are_no_demos(tmp_path: Path) -> None:
    save(tmp_path)
    agent = scheme(2, 16, env={"pay": 1.0}, initial_human_demos_dir=str(tmp_path), rho=0.9, phi=0.0)
    agent.collector.collect(7)
    storage: Any = agent.storage
    assert storage.replaying.any()
    agent.collector.restart(None)
    assert not storage.replaying.any()
    agent.collector.collect(LENGTH)
    assert all(demo["DemoLength"] == LENGTH for demo in storage.reward_demos[1:])
    assert storage.reward_demos[-1][OBS][:, 1].tolist() == [0, 1, 2]


def test_the_state_holds_everything(tmp_path: Path) -> None:
    """Saved in the middle of replays: a copy collects the same rows, with the same demos, exactly."""
    save(tmp_path)
    demos = {"initial_human_demos_dir": str(tmp_path), "rho": 0.4, "phi": 0.4, "total_buffer_demo_capacity": 4}
    one, other = (scheme(3, 16, recurrent=True, seed=seed, **demos) for seed in (1, 2))
    one.step()
    one.collector.collect(5)
    state = one.storage.get_state()
    storage: Any = other.storage
    storage.set_state(state)
    assert storage.replaying.any()
    world = one.collector.obs, one.collector.rhs, one.collector.done
    random = torch.Generator().manual_seed(0)
    inputs = [world, world]
    for _ in range(40):
        shape = torch.rand(3, 4, generator=random)
        columns = {key: shape[:, i : i + 1].clone() for i, key in enumerate((REW, VAL, LOGP))}
        ended = (shape[:, 3:] < 0.3).float()
        for i, each in enumerate((one.storage, storage)):
            obs, rhs, done = inputs[i]
            sample = {OBS: obs, RHS: rhs, DONE: done, ACT: torch.ones(3, 1, dtype=torch.int64), **columns}
            sample |= {OBS2: obs + 1, RHS2: rhs, DONE2: ended * ~each.replaying[:, None], TERMINAL: ended * 0}  # type: ignore[index]
            each.insert_transition(sample)
            inputs[i] = each.next_inputs(obs + 1, rhs, sample[DONE2])
    first, second = one.storage.get_state(), storage.get_state()
    assert first["counts"] == second["counts"]
    assert first["value_demos"] == second["value_demos"]
    assert first["reward_demos"] == second["reward_demos"]
    assert torch.equal(first["generator"], second["generator"])
    for key in (OBS, ACT, REW, DONE, LOGP):
        assert torch.equal(first["data"][key], second["data"][key])
    assert state["counts"] != first["counts"]
