"""The networks for a fixed set of actions: the kernel against torch, order, batches, masks, sizes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_openness.algorithms.mappo.networks.actions import ActionDistribution, ActionsNetwork
from rl_openness.algorithms.mappo.networks.members import controlled_members, deciding
from rl_openness.algorithms.mappo.settings import ActionsSettings
from rl_openness.envs.base import NO_OP, Column, EnvSpec, PackedObs, concatenate
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.ragged import gather_segments, pointer
from tests.nn.builders import close, draws, equal

SPEC = EnvSpec(
    name="made up",
    agent_columns=(
        Column("x", scale=0.5, axis="x"),
        Column("mood", visible="self"),
        Column("y", scale=0.25, axis="y"),
        Column("secret", visible="critic"),
        Column("level"),
    ),
    task_columns=(Column("size", scale=2.0), Column("y", scale=0.25, axis="y"), Column("cause", visible="critic")),
    num_actions=4,
)
SETTINGS = ActionsSettings(hidden=8)


def network(dtype: torch.dtype = torch.float32, seed: int = 0) -> ActionsNetwork:
    """Far from its first, almost uniform policy."""
    torch.manual_seed(seed)
    net = ActionsNetwork(SPEC, SETTINGS)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return net.to(dtype)


def made_up(
    seed: int = 0, sizes: tuple[int, ...] = (3, 0, 5, 1), tasks: tuple[int, ...] = (2, 1, 0, 4), **more
) -> PackedObs:
    rng = np.random.default_rng(seed)
    members, empty = sum(sizes), np.empty(0, dtype=np.int64)
    mask = rng.random((members, 4)) < 0.6
    mask[:, 0] |= ~mask.any(1)
    obs = PackedObs(
        agent_rows=rng.normal(size=(members, 5)).astype(np.float32),
        present=rng.random(members) < 0.8,
        carry=np.full(members, -1),
        agent_id=np.arange(members),
        agent_ptr=pointer(np.array(sizes)),
        task_rows=rng.normal(size=(sum(tasks), 3)).astype(np.float32),
        task_ptr=pointer(np.array(tasks)),
        pair_agent=empty,
        pair_task=empty,
        pair_rows=np.zeros((0, 0), dtype=np.float32),
        action_mask=mask,
    )
    return replace(obs, **more)


def partial(seed: int = 0) -> PackedObs:
    """Each member sees some of its copy."""
    obs, rng = made_up(seed), np.random.default_rng(seed + 1)
    seen = [
        [j for j in range(*obs.agent_ptr[b : b + 2]) if j == i or rng.random() < 0.5]
        for i, b in enumerate(obs.agent_copy)
    ]
    return replace(obs, see_ptr=pointer(np.array(list(map(len, seen)))), see_agent=np.concatenate(seen))


def torch_logits(net: ActionsNetwork, obs: PackedObs, members: np.ndarray, dtype: torch.dtype = torch.float32):
    with torch.no_grad():
        return net.actor.network(net.actor.view.inputs(obs, members, dtype))


@pytest.mark.parametrize("obs", [made_up(), made_up(1, present=np.ones(9, dtype=bool)), partial(), partial(2)])
def test_the_kernel_says_what_torch_says(obs: PackedObs) -> None:
    net, members = network(), np.flatnonzero(deciding(obs))
    close(net.actor.logits(obs, members), torch_logits(net, obs, members), atol=2e-5)
    decision = net.actor.act(obs, draws(obs), explore=True)
    distribution = ActionDistribution(torch_logits(net, obs, members), torch.from_numpy(obs.action_mask[members]))
    close(decision.log_probs[members], distribution.log_prob(torch.from_numpy(decision.choices[members])), atol=2e-5)
    others = np.setdiff1d(np.arange(len(obs.present)), members)
    assert (decision.choices[others] == NO_OP).all()
    assert (decision.log_probs[others] == 0).all()


def test_the_best_action_is_the_best_legal_one() -> None:
    obs, net = made_up(), network()
    members = np.flatnonzero(deciding(obs))
    masked = torch_logits(net, obs, members).masked_fill(~torch.from_numpy(obs.action_mask[members]), -np.inf)
    equal(net.actor.act(obs, None, explore=False).choices[members], masked.argmax(1))


def test_samples_follow_the_probabilities_and_never_an_action_that_does_nothing() -> None:
    obs, net = made_up(), network()
    members = np.flatnonzero(deciding(obs))
    counts = np.zeros((len(members), 4))
    for seed in range(3000):
        counts[np.arange(len(members)), net.actor.act(obs, draws(obs, seed), explore=True).choices[members]] += 1
    mask = torch.from_numpy(obs.action_mask[members])
    probabilities = ActionDistribution(torch_logits(net, obs, members), mask).log_probs.exp().numpy()
    assert (counts[~obs.action_mask[members]] == 0).all()
    assert (np.abs(counts / 3000 - probabilities) < 0.05).all()


def test_a_copy_decides_alike_to_the_last_bit_whatever_is_beside_it() -> None:
    obs, net = made_up(), network()
    whole = net.actor.logits(obs, np.arange(9))
    for b in range(obs.num_copies):
        alone = obs.select(np.array([b]))
        equal(net.actor.logits(alone, np.arange(len(alone.present))), whole[obs.agent_copy == b])
    large = concatenate([obs] * 7)
    equal(net.actor.logits(large, np.arange(63)), np.concatenate([whole] * 7))


@pytest.mark.parametrize("half", ["actor", "critic"])
def test_order_of_tasks_and_of_others_does_not_matter(half: str) -> None:
    net, obs = network(torch.float64), made_up()
    part, rng = getattr(net, half), np.random.default_rng(5)
    order = np.concatenate([rng.permutation(np.arange(*obs.agent_ptr[b : b + 2])) for b in range(4)])
    tasks = np.concatenate([rng.permutation(np.arange(*obs.task_ptr[b : b + 2])) for b in range(4)])
    names = ("agent_rows", "present", "agent_id", "action_mask")
    shuffled = replace(obs, task_rows=obs.task_rows[tasks], **{name: getattr(obs, name)[order] for name in names})
    before = part.network(part.view.inputs(obs, np.arange(9), torch.float64))
    after = part.network(part.view.inputs(shuffled, np.arange(9), torch.float64))
    close(after, before[torch.from_numpy(order)])


def test_what_may_not_be_seen_changes_nothing() -> None:
    net, obs = network(), made_up(2)
    members = np.flatnonzero(deciding(obs))
    before, value = net.actor.logits(obs, members), net.critic(net.critic.view.inputs(obs, members))
    rows, tasks = obs.agent_rows.copy(), obs.task_rows.copy()
    rows[:, 3] += 1.0  # hidden from all
    tasks[:, 2] += 1.0
    rows[~obs.present] += 1.0  # away: in nobody's set
    hidden = replace(obs, agent_rows=rows, task_rows=tasks)
    equal(net.actor.logits(hidden, members), before)
    assert not torch.equal(net.critic(net.critic.view.inputs(hidden, members)), value)
    other = np.flatnonzero(obs.agent_copy == obs.agent_copy[members[0]])[-1]
    rows = obs.agent_rows.copy()
    rows[other, 1] += 1.0  # its mood, which it knows alone
    changed = (
        net.actor.logits(replace(obs, agent_rows=rows), np.arange(9)) != net.actor.logits(obs, np.arange(9))
    ).any(1)
    equal(np.flatnonzero(changed), [other])


def test_only_controlled_members_decide() -> None:
    obs = made_up(present=np.ones(9, dtype=bool))
    controlled = np.arange(9) % 3 == 0
    all_choices = network().actor.act(obs, draws(obs), explore=True).choices
    choices = network().actor.act(replace(obs, controlled=controlled), draws(obs), explore=True).choices
    equal(choices, np.where(controlled, all_choices, NO_OP))
    equal(controlled_members(replace(obs, controlled=controlled)), [0, 3, 6])
    nobody = replace(obs, controlled=np.zeros(9, dtype=bool))
    assert (network().actor.act(nobody, draws(obs), explore=True).choices == NO_OP).all()


def test_without_a_mask_and_without_tasks() -> None:
    spec = replace(SPEC, task_columns=())
    obs = made_up(action_mask=None, task_rows=np.zeros((0, 0), dtype=np.float32), task_ptr=np.zeros(5, dtype=np.int64))
    net = ActionsNetwork(spec, SETTINGS)
    decision = net.actor.act(obs, DecisionDraws.fresh(4), explore=True)
    members = np.flatnonzero(obs.present)
    assert ((decision.choices[members] >= 0) & (decision.choices[members] < 4)).all()
    close(net.actor.logits(obs, members), torch_logits(net, obs, members), atol=2e-5)


def test_selected_members_keep_what_they_read() -> None:
    obs, net = made_up(), network()
    inputs = net.critic.view.inputs(obs, np.arange(9))
    chosen = torch.tensor([7, 0, 0, 4])
    close(net.critic(inputs.select(chosen)), net.critic(inputs)[chosen], atol=1e-6)
    assert gather_segments(obs.task_ptr, obs.agent_copy)[1][-1] == len(inputs.task_rows)


def test_agents_that_choose_tasks_need_another_network() -> None:
    with pytest.raises(ValueError, match="agents of 'made up' choose tasks"):
        ActionsNetwork(replace(SPEC, num_actions=None), SETTINGS)
