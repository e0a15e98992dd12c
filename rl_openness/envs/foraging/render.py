"""Foraging as a picture and in words: foods are apples with their level, players discs with theirs.

The learner has a white ring and number 0 at its side; small numbers tell who is who. Teammates that are away are
nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from rl_openness.envs.foraging.env import ForagingEnv
from rl_openness.envs.foraging.rules import COL, ID, LEVEL, ROW
from rl_openness.envs.render import (
    INK,
    PAPER,
    WHITE,
    Canvas,
    Picture,
    agent_color,
    board,
    by_cell,
    grid_lines,
    spread,
    table,
)

_APPLE, _LEAF = (205, 62, 46), (86, 148, 62)


@dataclass(frozen=True)
class Scene:
    """A foraging state: whoever is in the team, in listing order, the learner first; foods that are left."""

    height: int
    width: int
    numbers: list[int]
    """`agent_id` of each player."""
    places: list[tuple[int, int]]
    """(row, column) of each player,"""
    levels: list[int]
    """and its level."""
    foods: list[tuple[int, int]]
    food_levels: list[int]
    learner: bool
    """Whether the first player is a learner among teammates."""
    step: int
    max_steps: int


def scene(env: ForagingEnv, copy: int = 0) -> Scene:
    """The state of a copy now."""
    state, config = env.get_state(), env.config
    members = state["member"][copy, : state["num_members"][copy]].tolist()
    foods = state["food"][copy, : state["num_foods"][copy]].tolist()
    return Scene(
        height=config.size,
        width=config.size,
        numbers=[row[ID] for row in members],
        places=[(row[ROW], row[COL]) for row in members],
        levels=[row[LEVEL] for row in members],
        foods=[(row[ROW], row[COL]) for row in foods],
        food_levels=[row[LEVEL] for row in foods],
        learner=config.controlled == "first",
        step=int(state["step"][copy]),
        max_steps=config.max_steps,
    )


def _words(state: Scene) -> list[str]:
    foods, team = len(state.foods), len(state.places)
    return [
        f"foraging   step {state.step}/{state.max_steps}   {foods} food{'' if foods == 1 else 's'}   {team} players"
    ]


def draw(state: Scene, cell: int = 48) -> Picture:
    """uint8 [H, W, 3]."""
    canvas, top = board(state.height, state.width, cell, _words(state))
    grid_lines(canvas, top, state.height, state.width, cell)
    for (y, x), level in zip(state.foods, state.food_levels, strict=True):
        _draw_food(canvas, top + (y + 0.5) * cell, (x + 0.5) * cell, cell * 0.3, level)
    for (y, x), players in by_cell(state.places).items():
        radius = cell * (0.34 if len(players) == 1 else 0.2)
        for player, (dy, dx) in zip(players, spread(len(players), cell * 0.24), strict=True):
            _draw_player(canvas, state, player, top + (y + 0.5) * cell + dy, (x + 0.5) * cell + dx, radius)
    return canvas.picture()


def _draw_food(canvas: Canvas, y: float, x: float, radius: float, level: int) -> None:
    canvas.line((y - radius * 0.7, x), (y - radius * 1.35, x + radius * 0.25), radius * 0.2, INK)
    canvas.polygon(
        [
            (y - radius * 1.05, x + radius * 0.15),
            (y - radius * 1.45, x + radius * 0.6),
            (y - radius * 1.3, x + radius * 0.95),
            (y - radius * 0.95, x + radius * 0.65),
        ],
        _LEAF,
    )
    for side in (-0.28, 0.28):
        canvas.disc(y, x + side * radius, radius * 0.92, _APPLE)
    canvas.text(y, x, str(level), radius * 0.95, WHITE)


def _draw_player(canvas: Canvas, state: Scene, player: int, y: float, x: float, radius: float) -> None:
    color = agent_color(state.numbers[player])
    canvas.disc(y, x, radius * 1.1, INK if state.learner and player == 0 else PAPER)
    if state.learner and player == 0:
        canvas.disc(y, x, radius, WHITE)
        radius *= 0.84
    canvas.disc(y, x, radius, color)
    canvas.text(y - radius * 0.22, x, str(state.levels[player]), radius * 0.9, WHITE)
    canvas.text(y + radius * 0.62, x, str(state.numbers[player]), radius * 0.46, WHITE)


def text(state: Scene) -> str:
    """Lines: `f3` = a food of level 3, `0:L2` = player 0, of level 2."""
    cells: dict[tuple[int, int], str] = {}
    for place, level in zip(state.foods, state.food_levels, strict=True):
        cells[place] = f"f{level}"
    for number, place, level in zip(state.numbers, state.places, state.levels, strict=True):
        cells[place] = cells.get(place, "") + f"{number}:L{level}"
    rows = [[cells.get((y, x), ".") for x in range(state.width)] for y in range(state.height)]
    learner = [f"player {state.numbers[0]} is the learner"] if state.learner else []
    return "\n".join([*_words(state), table(rows), *learner])
