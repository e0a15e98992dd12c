"""The open-team processes in numbers: sizes, stays, absences, types and traits against the specification's."""

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP
from rl_openness.envs.wolfpack import WolfpackEnv
from tests.envs.wolfpack.test_env import make

COPIES = 1000


def sizes_and_spans(env: WolfpackEnv, steps: int = 200) -> tuple[np.ndarray, list[int], list[tuple[int, int]]]:
    """Team sizes [steps, copies]; all completed stays of teammates; (first step, stay) of each of them."""
    env.reset(np.arange(env.num_copies))
    arrived: dict[tuple[int, int], int] = {}
    stays: list[tuple[int, int]] = []
    sizes = []
    for t in range(steps):
        obs = env.observe()
        sizes.append(np.diff(obs.agent_ptr))
        now = set(zip(obs.agent_copy.tolist(), obs.agent_id.tolist(), strict=True))
        for member in arrived.keys() - now:
            first = arrived.pop(member)
            stays.append((first, t - first))
        for member in now - arrived.keys():
            arrived[member] = t
        env.step(np.full(len(obs.present), NO_OP))
    return np.array(sizes), [stay for _, stay in stays], stays


def restated(most: int, copies: int, generator: np.random.Generator) -> tuple[float, float]:
    """Mean team size and share of steps with a newcomer, from the specification's words alone."""
    total = joined = 0
    for _ in range(copies):
        ages = [0, 0]
        for _ in range(200):
            total += 1 + len(ages)
            ages = [age + 1 for age in ages]
            old = [i for i, age in enumerate(ages) if age > 25]
            if generator.random() < 0.05:
                number = min(1 + (generator.random() < 0.3), len(ages) - 1, len(old))
                gone = generator.choice(old, number, replace=False) if number > 0 else []
                ages = [age for i, age in enumerate(ages) if i not in gone]
            if generator.random() < 0.05:
                number = min(1 + (generator.random() < 0.3), most - 1 - len(ages))
                ages += [0] * number
                joined += number > 0
    return total / copies / 200, joined / copies / 200


@pytest.mark.parametrize(("slots", "most", "published"), [(5, 3, 2.6), (5, 5, 3.9), (9, 9, 5.5)])
def test_reference_process(slots: int, most: int, published: float) -> None:
    env = make(COPIES, names=("random",), slots=slots, team_size=most)
    sizes, stays, _ = sizes_and_spans(env)
    assert (sizes[:26] >= 3).all()  # nobody has been there for more than 25 steps
    assert (sizes[0] == 3).all()
    assert sizes.min() == 2
    assert sizes.max() == most
    assert min(stays) == 26
    mean, growing = restated(most, 300, np.random.default_rng(7))
    spread = sizes.mean(axis=0).std() * np.sqrt(1 / 300 + 1 / COPIES)
    assert abs(sizes.mean() - mean) < 4 * spread
    assert sizes.mean() == pytest.approx(published, rel=0.07)
    env.reset(np.arange(COPIES))
    grew = np.mean([(env.step(np.full(len(env.observe().present), NO_OP)).events["joins"] > 0) for _ in range(200)])
    assert grew == pytest.approx(growing, abs=0.003)


def test_types_and_traits() -> None:
    """Types are uniform over the given ones, of the first members and of joiners (the reference forgets its list)."""
    env = make(COPIES, names=("random", "greedy", "greedy_waiting", "teammate_aware"), team_size=5)
    first, later = np.empty((0, 3)), np.empty((0, 3))
    for t in range(60):
        obs = env.observe()
        new = (obs.carry < 0) & (obs.agent_rows[:, 2] >= 0)
        rows = obs.agent_rows[new, 2:5]
        first, later = (rows, later) if t == 0 else (first, np.concatenate([later, rows]))
        env.step(np.full(len(obs.present), NO_OP))
    assert len(first) == 2 * COPIES
    for rows in (first, later):
        n = len(rows)
        assert n > 1500
        for column, values, p in (
            (0, (0, 1, 2, 3), (0.25, 0.25, 0.25, 0.25)),
            (1, (2, 3, 4), (0.4, 0.4, 0.2)),
            (2, (1, 2), (0.7, 0.3)),
        ):
            for value, share in zip(values, p, strict=True):
                assert abs((rows[:, column] == value).mean() - share) < 4 * np.sqrt(share * (1 - share) / n)
        assert abs(np.corrcoef(rows.T)[0, 1]) < 5 / np.sqrt(n)


def test_starts_are_uniform() -> None:
    env = make(6000, names=("random",))
    obs = env.observe()
    for rows in (obs.agent_rows, obs.task_rows):
        cells = (rows[:, 0] * 10 + rows[:, 1]).astype(int)
        counts = np.bincount(cells, minlength=100)
        assert abs(counts / len(cells) - 0.01).max() < 4.5 * np.sqrt(0.01 / len(cells))
    assert (obs.task_rows[:, 2] == 1).all()


def test_paper_process_stays() -> None:
    """Stays last 25 to 35 steps, longer only for a last teammate; whoever is away stays away for 15 to 25 or longer."""
    env = make(400, names=("random",), team_size=5, slots=5, open_process="paper")
    sizes, stays, spans = sizes_and_spans(env)
    assert min(stays) == 25
    usual = np.array([stay for first, stay in spans if first > 0])
    assert np.mean((usual >= 25) & (usual <= 35)) > 0.9
    assert sizes.min() >= 2
    assert sizes.max() == 5
    assert (sizes[:15] == 3).all()  # two of the four teammates are absent at first
    assert (sizes[25] > 3).any()


def test_paper_process_queue() -> None:
    """With more teammates than room whoever waits comes as soon as someone leaves, so the team stays full."""
    world = {"team_size": 3, "slots": 9, "open_process": "paper"}
    sizes, _, _ = sizes_and_spans(make(200, names=("random",), **world))
    assert sizes.min() == sizes.max() == 3
    env = make(100, names=("random",), team_size=3, slots=3, open_process="paper", stay=(4, 4), absence=(3, 3))
    sizes, stays, _ = sizes_and_spans(env, 60)
    # one leaves at 4 and is back at 7; only then may the other go, at 8; it is back at 11, and so on
    assert sizes[:13, 0].tolist() == [3, 3, 3, 3, 2, 2, 2, 3, 2, 2, 2, 3, 2]
    assert (sizes == sizes[:, :1]).all()
    assert sorted(set(stays)) == [4, 5, 8]
