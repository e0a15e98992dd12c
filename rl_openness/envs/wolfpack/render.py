"""Wolfpack as a picture and in words: predators are discs with their number, prey are darts that point where they face.

The learner has a white ring. Caught prey are grey and crossed out (they come back in the next step).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rl_openness.envs.render import (
    GREY,
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
from rl_openness.envs.wolfpack.env import WolfpackEnv

_PREY = (224, 132, 16)
_ARROWS = "^>v<"


@dataclass(frozen=True)
class Scene:
    """A Wolfpack state: predators in list order, the learner first; prey."""

    height: int
    width: int
    numbers: list[int]
    """`agent_id` of each predator."""
    places: list[tuple[int, int]]
    """(row, column) of each predator."""
    prey: list[tuple[int, int]]
    facing: list[int]
    """0 up, 1 right, 2 down, 3 left."""
    alive: list[bool]
    learner: bool
    """Whether the first predator is a learner among teammates."""
    step: int
    max_steps: int


def scene(env: WolfpackEnv, copy: int = 0) -> Scene:
    """The state of a copy now."""
    state = {name: array[copy] for name, array in env.get_state().items() if "." not in name}
    count = int(state["members"])
    return Scene(
        height=env.config.size,
        width=env.config.size,
        numbers=state["agent_id"][:count].tolist(),
        places=list(zip(state["row"][:count].tolist(), state["col"][:count].tolist(), strict=True)),
        prey=list(zip(state["prey_row"].tolist(), state["prey_col"].tolist(), strict=True)),
        facing=state["facing"].tolist(),
        alive=state["alive"].tolist(),
        learner=env.config.controlled == "first",
        step=int(state["step"]),
        max_steps=env.config.max_steps,
    )


def _words(state: Scene) -> list[str]:
    return [f"wolfpack   step {state.step}/{state.max_steps}   {len(state.places)} predators   {len(state.prey)} prey"]


def draw(state: Scene, cell: int = 48) -> Picture:
    """uint8 [H, W, 3]."""
    canvas, top = board(state.height, state.width, cell, _words(state))
    grid_lines(canvas, top, state.height, state.width, cell)
    count = len(state.prey)
    for (y, x), things in by_cell([*state.prey, *state.places]).items():
        small = 1.0 if len(things) == 1 else 0.58
        for thing, (dy, dx) in zip(things, spread(len(things), cell * 0.24), strict=True):
            middle = top + (y + 0.5) * cell + dy, (x + 0.5) * cell + dx
            if thing < count:
                _draw_prey(canvas, *middle, cell * 0.36 * small, state.facing[thing], state.alive[thing])
            else:
                _draw_predator(canvas, state, thing - count, *middle, cell * 0.34 * small)
    return canvas.picture()


def _draw_prey(canvas: Canvas, y: float, x: float, size: float, facing: int, alive: bool) -> None:
    angle = facing * np.pi / 2
    dy, dx = -np.cos(angle), np.sin(angle)

    def at(ahead: float, aside: float) -> tuple[float, float]:
        return float(y + size * (ahead * dy + aside * dx)), float(x + size * (ahead * dx - aside * dy))

    color = _PREY if alive else GREY
    for side in (-0.75, 0.75):  # two halves, for a dart is not convex
        canvas.polygon([at(1.0, 0.0), at(-0.85, side), at(-0.45, 0.0)], color)
    canvas.disc(*at(0.25, 0.0), size * 0.13, INK)
    if not alive:
        for side in (-0.8, 0.8):
            canvas.line(at(0.8, side), at(-0.8, -side), size * 0.18, INK)


def _draw_predator(canvas: Canvas, state: Scene, predator: int, y: float, x: float, radius: float) -> None:
    color = agent_color(state.numbers[predator])
    for side in (-1, 1):  # ears
        canvas.polygon(
            [
                (y - radius * 1.25, x + side * radius * 0.85),
                (y - radius * 0.3, x + side * radius * 0.97),
                (y - radius * 0.9, x + side * radius * 0.2),
            ],
            INK if state.learner and predator == 0 else color,
        )
    canvas.disc(y, x, radius * 1.08, INK if state.learner and predator == 0 else PAPER)
    if state.learner and predator == 0:
        canvas.disc(y, x, radius * 0.98, WHITE)
        radius *= 0.82
    canvas.disc(y, x, radius, color)
    canvas.text(y, x, str(state.numbers[predator]), radius * 0.9, WHITE)


def text(state: Scene) -> str:
    """Lines: numbers are predators, `^ > v <` prey by the way they face, `x` a caught one."""
    cells: dict[tuple[int, int], str] = {}
    for place, facing, alive in zip(state.prey, state.facing, state.alive, strict=True):
        cells[place] = cells.get(place, "") + (_ARROWS[facing] if alive else "x")
    for number, place in zip(state.numbers, state.places, strict=True):
        cells[place] = cells.get(place, "") + str(number)
    rows = [[cells.get((y, x), ".") for x in range(state.width)] for y in range(state.height)]
    learner = [f"predator {state.numbers[0]} is the learner"] if state.learner else []
    return "\n".join([*_words(state), table(rows), *learner])
