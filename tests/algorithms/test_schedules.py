"""Settings that change with the env steps: what is accepted, and the values between the points."""

import pytest
from pydantic import ValidationError

from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.algorithms.schedules import value_at

POINTS = [[0, 1e-3], [100, 5e-4], [300, 0]]


@pytest.mark.parametrize(
    ("env_steps", "value"), [(0, 1e-3), (50, 7.5e-4), (100, 5e-4), (200, 2.5e-4), (300, 0.0), (10**9, 0.0)]
)
def test_straight_lines_between_points_and_the_last_value_after_them(env_steps: int, value: float) -> None:
    assert value_at(POINTS, env_steps) == pytest.approx(value)
    assert value_at(0.25, env_steps) == 0.25


def test_settings_read_both_forms_and_give_them_back() -> None:
    settings = PlatoSettings(lr=POINTS, entropy_coeff=0.5)
    assert settings.lr == ((0, 1e-3), (100, 5e-4), (300, 0.0))
    assert settings.entropy_coeff == 0.5
    assert PlatoSettings(**settings.model_dump(mode="json")) == settings


@pytest.mark.parametrize(
    "wrong",
    ["fast", True, -1, None, float("nan"), [], [[0, 1e-3]], [[5, 1e-3], [9, 0]], [[0, 1], [9, 0], [9, 1]], [[0], [1]],
     [[0, 1e-3], [1, "x"]], [0, 1], {"0": 1}],
)  # fmt: skip
def test_anything_else_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError, match=r"must be a number of at least 0, or a list|must not be True"):
        PlatoSettings(lr=wrong)


def test_a_learning_rate_of_zero_throughout_is_refused() -> None:
    with pytest.raises(ValidationError, match="lr must be greater than 0"):
        PlatoSettings(lr=0)
