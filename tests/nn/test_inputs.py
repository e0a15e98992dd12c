"""Tables that store repeated rows once, and cutting inputs to a selection of team-steps."""

from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import example, given

from rl_openness.nn.features import ActorFeatures, critic_inputs
from rl_openness.nn.inputs import RowTable, deduplicated
from tests.nn.builders import BUSY, SEE, SEEDS, SIZES, SPEC, equal, random_obs, several, tensors

NAN = float("nan")


def bits(rows: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(rows.numpy()).view(np.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("distinct", "kinds"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], 2),
        ([[1.0, 0.0], [1.0, 2.0], [0.0, 1.0]], 3),  # trailing zero bytes, which NumPy's byte strings drop
        ([[0.0, 0.0], [1.0, 0.0]], 2),  # nothing but zero bytes
        ([[0.0, 1.0], [-0.0, 1.0]], 2),  # equal numbers, other bits
        ([[0.0, -0.0], [-0.0, 0.0], [0.0, 0.0], [-0.0, -0.0]], 4),
        ([[NAN, 1.0], [1.0, NAN]], 2),  # a NaN equals no number, but its bits are equal
        ([[float("inf"), 0.0], [-float("inf"), 0.0]], 2),
        ([[2.0**-126, 0.0], [0.0, 2.0**-126], [2.0**-120, 0.0]], 3),  # zero bytes inside
    ],
)
def test_rows_are_stored_once_and_come_back_bit_by_bit(
    distinct: list[list[float]], kinds: int, dtype: torch.dtype
) -> None:
    index = np.random.default_rng(0).integers(0, len(distinct), size=40)
    index[: len(distinct)] = np.arange(len(distinct))
    rows = torch.tensor(distinct, dtype=dtype)[torch.from_numpy(index)]
    table = RowTable(rows).deduplicate()
    assert table.index is not None
    assert table.rows.shape == (kinds, 2)
    assert table.rows.dtype == dtype
    assert len(table) == len(rows)
    equal(bits(table.expand(table.rows)), bits(rows))
    equal(bits(table.apply(lambda x: x * 2)), bits(rows * 2))
    some = torch.tensor([3, 3, 0, 39])
    equal(bits(table.select(some).apply(lambda x: x)), bits(rows[some]))
    assert table.deduplicate() is table


def test_no_index_where_it_would_not_pay() -> None:
    rows = torch.arange(10.0).view(-1, 1)
    mostly = torch.cat([rows[:6], rows[:4]])
    assert RowTable(mostly).deduplicate().index is None  # 6 of 10 are distinct
    half = RowTable(torch.cat([rows[:5], rows[:5]])).deduplicate()
    assert half.index is not None
    assert len(half.rows) == 5


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0)])
def test_tables_without_numbers(shape: tuple[int, int]) -> None:
    table = RowTable(torch.zeros(shape)).deduplicate()
    assert len(table) == shape[0]
    assert table.expand(table.rows).shape == shape


def test_gradients_of_repeated_rows_add_up() -> None:
    weight = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [1.0, 0.0]], dtype=torch.float64)
    factor = torch.randn(4, 3, dtype=torch.float64)
    found = [
        torch.autograd.grad((table.apply(lambda x: x @ weight) * factor).sum(), weight)[0]
        for table in (RowTable(rows), RowTable(rows).deduplicate())
    ]
    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), rtol=0, atol=1e-12)


def test_rows_of_a_slice_are_deduplicated_too() -> None:
    wide = torch.tensor([[1.0, 9.0, 2.0], [1.0, 8.0, 2.0], [1.0, 7.0, 2.0]])
    table = RowTable(wide[:, ::2]).deduplicate()  # not contiguous
    assert len(table.rows) == 1
    equal(table.expand(table.rows), wide[:, ::2])


def assert_same(left: object, right: object) -> None:
    for field in fields(left):
        mine, theirs = getattr(left, field.name), getattr(right, field.name)
        if field.name in ("member", "index"):
            continue
        if isinstance(mine, RowTable):
            mine, theirs = mine.expand(mine.rows), theirs.expand(theirs.rows)
        assert (mine is None) == (theirs is None), field.name
        if mine is not None:
            equal(mine, theirs)


@pytest.mark.parametrize("options", [{}, {"pointer": True}, {"memory": True}, {"pointer": True, "memory": True}])
@pytest.mark.parametrize("once", [False, True])
@several
@example(seed=1, sizes=BUSY, see=0.5)
@given(seed=SEEDS, sizes=SIZES, see=SEE)
def test_cutting_inputs_is_deriving_them_from_the_cut(
    options: dict[str, bool], once: bool, seed: int, sizes: list[tuple[int, int]], see: float | None
) -> None:
    rng = np.random.default_rng(seed)
    obs = random_obs(rng, sizes * 2, see=see)
    steps = rng.permutation(obs.num_copies)[: max(1, obs.num_copies // 2)]
    team, cut = tensors(obs), tensors(obs.select(steps))
    features = ActorFeatures(SPEC, **options)
    whole = deduplicated(features(team)) if once else features(team)
    actor, deciders = whole.select(torch.from_numpy(steps))
    assert_same(actor, features(cut))
    equal(actor.member, features(team).member[deciders])
    for edges in (False, True):
        nodes = critic_inputs(team, SPEC, edges=edges)
        nodes = deduplicated(nodes) if once else nodes
        assert_same(nodes.select(torch.from_numpy(steps)), critic_inputs(cut, SPEC, edges=edges))
        assert nodes.num_steps == obs.num_copies
