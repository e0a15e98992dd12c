"""The packed network against the specification written out agent by agent, and its symmetries."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rl_openness.algorithms.gpl.graph import TeamGraph
from rl_openness.algorithms.gpl.network import GplNetwork, SplitLinear
from rl_openness.algorithms.gpl.recurrence import TwinGRU, TwinLinear, TwinLSTM
from rl_openness.algorithms.gpl.settings import GPL_VARIANTS, GplSettings
from rl_openness.algorithms.gpl.utilities import joint_q, pairwise_entries, ranged
from rl_openness.envs.base import Column, EnvSpec, PackedObs
from tests.algorithms.gpl import reference
from tests.algorithms.gpl.builders import ACTIONS, SPEC, graph_of, network, observation
from tests.nn.builders import close, equal, gradients, randomise, same_gradients, with_column

TEAMS = ["Lab|f", "L|", "abL|fgh", "cLad|gf", "La|f"]
FORMS = {
    f"{graph}-{comp}-{factor}-{cell}": {"graph": graph, "pair_comp": comp, "pair_factor": factor, "seq_model": cell}
    for graph, (comp, factor), cell in product(
        ("complete", "star"), (("bmm", "edge"), ("avg", "edge"), ("bmm", "node")), ("lstm", "gru")
    )
}


def run(net: GplNetwork, obs: PackedObs, memory: Tensor | None = None) -> tuple[Tensor, TeamGraph]:
    """Types of all members (without a memory, of teams that begin anew), and the graphs of the teams."""
    rows = torch.from_numpy(net.inputs(obs)).to(net.dtype)
    if memory is None:
        memory = rows.new_zeros(len(rows), net.memory_width)
    return net.types(rows, memory, (len(rows),))[0], graph_of(obs, star=net.settings.graph == "star")


def memory_of(net: GplNetwork, obs: PackedObs) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(len(obs.present), net.memory_width, generator=generator, dtype=net.dtype)


def joint(net: GplNetwork, theta: Tensor, graph: TeamGraph, actions: Tensor) -> Tensor:
    individual = ranged(net.individual(theta, graph), net.settings.individual_range)
    forward, backward = net.pairwise(theta, graph)
    entries = pairwise_entries(forward, backward, actions[graph.first], actions[graph.second], net.settings.pair_comp)
    pairs = ranged(entries, net.settings.pair_range)
    return joint_q(individual.gather(1, actions[:, None]).squeeze(1), pairs, graph)


def everything(net: GplNetwork, obs: PackedObs) -> dict[str, Tensor]:
    theta, graph = run(net, obs)
    actions = torch.from_numpy(obs.agent_id % ACTIONS)
    return {
        "joint": joint(net, theta[0], graph, actions),
        "values": net.learner_values(theta, graph),
        "logits": net.agent_model(theta[1], graph),
        "preferences": net.preferences(theta, graph),
    }


# Sizes


def foraging(slots: int = 3) -> EnvSpec:
    columns = (Column("y"), Column("x"), Column("level"))
    return EnvSpec("foraging", columns, columns, num_actions=6, task_slots=slots, empty_task=(-1.0, -1.0, 0.0))


def wolfpack() -> EnvSpec:
    task = (Column("y"), Column("x"), *(Column(f"faces_{way}") for way in range(4)))
    agent = (Column("y"), Column("x"), Column("type", visible="critic"))
    return EnvSpec("wolfpack", agent, task, num_actions=5, task_slots=2, empty_task=(0.0,) * 6)


@pytest.mark.parametrize(
    ("spec", "whole", "agent_model"), [(foraging(), 249_922, 120_016), (wolfpack(), 249_935, 120_195)]
)
@pytest.mark.parametrize("variant", GPL_VARIANTS)
def test_parameters_are_the_authors_without_the_dead_ones(
    spec: EnvSpec, whole: int, agent_model: int, variant: str
) -> None:
    dead = 30 * 140 + 30 + 70 * 30 + 70
    net = GplNetwork(spec, GplSettings(**GPL_VARIANTS[variant]))
    assert sum(p.numel() for p in net.parameters()) == whole - dead
    utilities, model = net.halves()
    assert sum(p.numel() for p in model) == agent_model - dead
    assert sum(p.numel() for p in utilities) == whole - agent_model


def test_sizes_do_not_depend_on_a_team() -> None:
    assert network().state_dict().keys() == network(graph="star").state_dict().keys()
    shapes = {name: value.shape for name, value in network().state_dict().items()}
    assert shapes == {name: value.shape for name, value in network(graph="star").state_dict().items()}


# Initialisation is torch's


@pytest.mark.parametrize("fan_in", [12, 100])
def test_initial_weights(fan_in: int) -> None:
    torch.manual_seed(0)
    bound = fan_in**-0.5
    split = SplitLinear(2, fan_in // 2, 200)
    for layer in (TwinLinear(fan_in, 200), split, nn.Linear(fan_in, 200)):
        for parameter in layer.parameters():
            assert 0.9 * bound < parameter.abs().max() <= bound
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.15)
    for cell in (TwinLSTM(5, fan_in), TwinGRU(5, fan_in)):
        for parameter in cell.parameters():
            assert parameter.abs().max() <= bound
            assert parameter.std().item() == pytest.approx(bound / 3**0.5, rel=0.15)


# Pieces


def test_a_split_layer_is_the_concatenated_one() -> None:
    layer = randomise(SplitLinear(3, 5, 4))
    x, y, z = torch.randn(3, 7, 5, dtype=torch.float64)
    whole = torch.cat(layer.weight.chunk(3), dim=1)
    parts = [layer.project(rows)[i] for i, rows in enumerate((x, y, z))]
    close(sum(parts) + layer.bias, linear(torch.cat([x, y, z], 1), whole, layer.bias), atol=1e-12)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_recurrent_cells_are_torchs(kind: str, dtype: torch.dtype) -> None:
    """Outputs, memory and all gradients, over blocks that shrink."""
    torch.manual_seed(0)
    inputs, hidden, blocks = 5, 6, (4, 3, 3, 1)
    twin = (TwinLSTM if kind == "lstm" else TwinGRU)(inputs, hidden).to(dtype)
    single = nn.LSTMCell if kind == "lstm" else nn.GRUCell
    cells = nn.ModuleList(single(inputs, hidden).to(dtype) for _ in range(2))
    with torch.no_grad():
        for branch, cell in enumerate(cells):
            for name, parameter in cell.named_parameters():
                parameter.copy_(getattr(twin, name)[branch])
    rows = torch.randn(2, sum(blocks), inputs, dtype=dtype, requires_grad=True)
    memory, weight = torch.randn(blocks[0], twin.width, dtype=dtype), torch.randn(2, sum(blocks), hidden, dtype=dtype)
    outputs, after = twin(rows, memory, blocks)
    mine = gradients(twin, (outputs * weight).sum())
    (into_rows,) = torch.autograd.grad((outputs * weight).sum(), rows, retain_graph=True)

    expected, expected_after = [], []
    for branch, cell in enumerate(cells):
        state = [part[branch] for part in memory.view(-1, twin.parts, 2, hidden).permute(1, 2, 0, 3)]
        seen, kept = [], []
        for x in rows[branch].split(blocks):
            state = [part[: len(x)] for part in state]
            state = list(cell(x, tuple(state))) if kind == "lstm" else [cell(x, state[0])]
            seen.append(state[0])
            kept.append(torch.stack(state))
        expected.append(torch.cat(seen))
        expected_after.append(torch.cat(kept, dim=1))
    atol = 1e-12 if dtype == torch.float64 else 2e-5
    close(outputs, torch.stack(expected), atol)
    close(after, torch.stack(expected_after, 1).permute(2, 0, 1, 3).flatten(1), atol)
    assert not after.requires_grad
    loss = (torch.stack(expected) * weight).sum()
    for branch, cell in enumerate(cells):
        for name, gradient in gradients(cell, loss).items():
            close(mine[name][branch], gradient, atol)
    close(into_rows, torch.autograd.grad(loss, rows)[0], atol)
    with torch.no_grad():
        quick, quick_after = twin(rows, memory, blocks)
    close(quick, outputs, atol)
    close(quick_after, after, atol)


def test_branches_share_nothing() -> None:
    net = network()
    obs = observation(TEAMS)
    theta, _ = run(net, obs, memory_of(net, obs))
    for branch in range(2):
        for name, gradient in gradients(net.types, theta[branch].sum()).items():
            assert gradient[branch].any(), name
            assert not gradient[1 - branch].any(), name


def test_expectations_take_the_agent_model_as_given() -> None:
    net, obs = network(), observation(TEAMS)
    theta, graph = run(net, obs, memory_of(net, obs))
    for name, gradient in gradients(net, net.learner_values(theta, graph).sum()).items():
        reached = gradient[0].any() and not gradient[1].any() if name.startswith("types") else gradient.any()
        assert reached != name.startswith("agent_model"), name


# The whole against the specification


@pytest.mark.parametrize("pair_range", ["free", "pos", "neg"])
@pytest.mark.parametrize("form", FORMS)
def test_values_logits_and_gradients(form: str, pair_range: str) -> None:
    individual_range = {"free": "free", "pos": "neg", "neg": "pos"}[pair_range]
    net = network(**FORMS[form], pair_range=pair_range, individual_range=individual_range)
    obs = observation(TEAMS)
    actions = torch.from_numpy(obs.agent_id % ACTIONS)
    memory = memory_of(net, obs)
    theta, graph = run(net, obs, memory)
    sizes, ptr = np.diff(obs.agent_ptr), obs.agent_ptr
    learner = [team.partition("|")[0].index("L") for team in TEAMS]
    rows = torch.from_numpy(net.inputs(obs)).to(net.dtype)
    teams = reference.teams(net, rows, memory, sizes, learner)
    mine = joint(net, theta[0], graph, actions)
    theirs = torch.stack([team.joint_q(actions[a:b]) for team, a, b in zip(teams, ptr, ptr[1:], strict=False)])
    close(mine, theirs)
    values = net.learner_values(theta, graph)
    close(values, torch.stack([team.learner_q() for team in teams]))
    logits = net.agent_model(theta[1], graph)
    expected = torch.stack([team.logits[j] for team in teams for j in sorted(team.logits)])
    close(logits, expected)
    weight = torch.arange(1.0, 1 + logits.numel(), dtype=torch.float64).view_as(logits)
    step = torch.arange(1.0, 6.0, dtype=torch.float64)
    left = gradients(net, (mine * step).sum() + (logits * weight).sum())
    right = gradients(net, (theirs * step).sum() + (expected * weight).sum())
    same_gradients(left, right, atol=1e-7)
    assert all(gradient.any() for gradient in left.values())


def test_preferences_differ_from_values_by_a_constant() -> None:
    for form in FORMS.values():
        found = everything(network(**form, individual_range="pos"), observation(TEAMS))
        gap = found["values"] - found["preferences"]
        close(gap, gap[:, :1].expand_as(gap))
        assert gap[0, 0].abs() > 0.1
        close(gap[1], np.zeros(ACTIONS))  # nobody else is there


def test_ranges() -> None:
    x = torch.tensor([-2.0, 0.0, 3.0], requires_grad=True)
    for kind, value, slope in (
        ("free", [-2, 0, 3], [1, 1, 1]),
        ("pos", [2, 0, 3], [-1, 0, 1]),
        ("neg", [-2, 0, -3], [1, 0, -1]),
    ):
        found = ranged(x, kind)
        assert found.tolist() == value
        assert torch.autograd.grad(found.sum(), x)[0].tolist() == slope
    assert ranged(x, "zero").tolist() == [0, 0, 0]
    assert not ranged(x, "zero").requires_grad


@pytest.mark.parametrize(("variant", "sign"), [("ciao-c", 1), ("ciao-s", 1), ("ciao-s-zi", 1)])
def test_values_have_the_sign_of_their_ranges(variant: str, sign: int) -> None:
    found = everything(network(**GPL_VARIANTS[variant]), observation(TEAMS))
    assert (sign * found["joint"] >= 0).all()
    assert (sign * found["values"] >= 0).all()
    found = everything(network(pair_range="neg", individual_range="neg"), observation(TEAMS))
    assert (found["joint"] <= 0).all()
    assert (found["values"] <= 0).all()


def test_zero_individual_utilities() -> None:
    found = everything(network(individual_range="zero"), observation(["L", "La"]))
    assert found["joint"][0] == 0
    assert found["joint"][1] != 0
    assert not found["values"][0].any()


# Symmetries


@pytest.mark.parametrize("form", FORMS)
def test_the_order_of_a_team_does_not_matter(form: str) -> None:
    net = network(**FORMS[form])
    left = everything(net, observation(["Labcd|fg"]))
    right = everything(net, observation(["dbLca|fg"]))
    for name in ("joint", "values", "preferences"):
        close(left[name], right[name])
    close(left["logits"], right["logits"][[3, 1, 2, 0]])  # a b c d from d b c a


@pytest.mark.parametrize("form", FORMS)
def test_a_team_does_not_notice_its_batch(form: str) -> None:
    net = network(**FORMS[form])
    whole = everything(net, observation(TEAMS))
    row = 0
    for b in range(len(TEAMS)):
        alone = everything(net, observation(TEAMS).select(np.array([b])))
        for name in ("joint", "values", "preferences"):
            close(whole[name][[b]], alone[name])
        close(whole["logits"][row : row + len(alone["logits"])], alone["logits"])
        row += len(alone["logits"])
    assert row == len(whole["logits"])


def test_star_and_complete_graph() -> None:
    star, complete = network(graph="star"), network()
    star.load_state_dict(complete.state_dict())
    for teams, same in ((["L", "La"], True), (["Lab"], False)):
        left, right = everything(star, observation(teams)), everything(complete, observation(teams))
        for name in left:
            assert np.allclose(left[name].detach(), right[name].detach()) == same, name


def test_in_a_star_a_mate_hears_only_the_learner() -> None:
    net = network(graph="star")
    obs = observation(["Labc"])
    changed = with_column(obs, "agent_rows", 0, 9.0, only=[2])  # b is elsewhere
    left, right = (everything(net, o)["logits"] for o in (obs, changed))
    close(left[[0, 2]], right[[0, 2]])
    assert (left[1] - right[1]).abs().max() > 1e-3
    complete = network()
    left, right = (everything(complete, o)["logits"] for o in (obs, changed))
    assert (left - right).abs().amax(1).min() > 1e-6


def test_a_learner_alone() -> None:
    for form in FORMS.values():
        net = network(**form)
        theta, graph = run(net, observation(["L|f", "L|g"]))
        close(net.learner_values(theta, graph), net.individual(theta[0], graph))
        assert net.agent_model(theta[1], graph).shape == (0, ACTIONS)


@pytest.mark.parametrize("graph", ["complete", "star"])
def test_a_team_of_forty(graph: str) -> None:
    team = "L" + "".join(chr(ord("Ā") + i) for i in range(39))
    net = network(graph=graph)
    found = everything(net, observation([team, "La"]))
    for value in found.values():
        assert torch.isfinite(value).all()
    assert found["logits"].shape == (40, ACTIONS)
    _, indices = run(net, observation([team]))
    assert len(indices.first) == (40 * 39 / 2 if graph == "complete" else 39)
    shuffled = everything(net, observation(["".join(reversed(team)), "La"]))
    close(found["joint"], shuffled["joint"], atol=1e-6)
    close(found["values"], shuffled["values"], atol=1e-6)


# Inputs


def test_inputs_by_hand() -> None:
    obs = observation(["Lab|fg", "L|", "La|fgh"])
    rows = network().inputs(obs)
    assert rows.dtype == np.float32
    scale = np.array([0.5, 2.0])
    expected = []
    for b, (members, tasks) in enumerate(((3, 2), (1, 0), (2, 3))):
        for i in range(members):
            own = obs.agent_rows[obs.agent_ptr[b] + i, :2] * [0.5, 0.25]
            u = [obs.task_rows[obs.task_ptr[b] + k, :2] * scale for k in range(tasks)]
            u += [np.array([-1.0, 0.5]) * scale] * (3 - tasks)
            expected.append(np.concatenate([own, *u]))
    close(rows, np.array(expected), atol=1e-6)


def test_hidden_columns_are_never_read() -> None:
    net, obs = network(), observation(TEAMS)
    changed = with_column(with_column(obs, "agent_rows", 2, 55.0), "task_rows", 2, 55.0)
    equal(net.inputs(obs), net.inputs(changed))


def test_what_the_network_refuses() -> None:
    with pytest.raises(ValueError, match="task_slots"):
        GplNetwork(EnvSpec("x", SPEC.agent_columns, SPEC.task_columns, num_actions=3), GplSettings())
    with pytest.raises(ValueError, match="empty_task"):
        GplNetwork(EnvSpec("x", SPEC.agent_columns, SPEC.task_columns, num_actions=3, task_slots=2), GplSettings())
    with pytest.raises(ValueError, match="fixed set of actions"):
        GplNetwork(EnvSpec("x", SPEC.agent_columns), GplSettings())
    with pytest.raises(ValueError, match="4 tasks"):
        network().inputs(observation(["L|fghi"]))


def test_an_environment_without_tasks() -> None:
    spec = EnvSpec("bare", SPEC.agent_columns, num_actions=ACTIONS)
    found = everything(network(spec=spec), observation(["La", "L"]))
    assert torch.isfinite(found["values"]).all()
