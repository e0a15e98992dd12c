"""Wildfire as a picture and in words.

Trees are cells that can burn, with as many as the cell's size. A fire has a number, its size (the attack power that it
needs), and a bar, its intensity: full = burns out next. Firefighters show their number, power (dots) and suppressant
(blue bar); those who are away are empty outlines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    mix,
    spread,
    table,
)
from rl_openness.envs.wildfire.env import WildfireEnv

_FOREST, _TREE = (214, 226, 196), (104, 145, 84)
_WARM, _HOT, _BURNT = (255, 214, 120), (226, 62, 28), (92, 86, 82)
_WATER = (56, 142, 222)


@dataclass(frozen=True)
class Scene:
    """A Wildfire state: H x W cells, A agents."""

    height: int
    width: int
    fire: NDArray[np.int32]
    """[H, W] signed size: > 0 burning, < 0 not burning, 0 never."""
    intensity: NDArray[np.int32]
    """[H, W] 0 to `num_states` - 1 (burnt out)."""
    num_states: int
    places: list[tuple[int, int]]
    """[A] (row, column)."""
    power: list[float]
    suppressant: list[float]
    full: float
    """Suppressant of a full bar."""
    present: list[bool]
    step: int
    max_steps: int | None


def scene(env: WildfireEnv, copy: int = 0) -> Scene:
    """The state of a copy now."""
    state, config = env.get_state(), env.config
    shape = (config.grid_height, config.grid_width)
    suppressant = state["suppressant"][copy].tolist()
    return Scene(
        height=shape[0],
        width=shape[1],
        fire=state["fire"][copy].reshape(shape),
        intensity=state["intensity"][copy].reshape(shape),
        num_states=config.fire.num_fire_states,
        places=[(int(y), int(x)) for y, x in config.agent.agents],
        power=list(config.agent.fire_reduction_power),
        suppressant=suppressant,
        full=float(max(config.agent.initial_capacity, *config.agent.possible_capacities, *suppressant)),
        present=[config.env.presence == "always" or level > 0 for level in suppressant],
        step=int(state["step"][copy]),
        max_steps=config.env.max_steps,
    )


def _words(state: Scene) -> list[str]:
    most = f"/{state.max_steps}" if state.max_steps else ""
    fires = int((state.fire > 0).sum())
    return [
        f"wildfire   step {state.step}{most}",
        f"{fires} fire{'' if fires == 1 else 's'}   {sum(state.present)}/{len(state.present)} present",
    ]


def draw(state: Scene, cell: int = 48) -> Picture:
    """uint8 [H, W, 3]."""
    canvas, top = board(state.height, state.width, cell, _words(state))
    for y in range(state.height):
        for x in range(state.width):
            _draw_cell(canvas, state, y, x, top + y * cell, x * cell, cell)
    grid_lines(canvas, top, state.height, state.width, cell)
    for (y, x), agents in by_cell(state.places).items():
        offsets, radius = _places(len(agents), burning=bool(state.fire[y, x] > 0))
        for agent, (dy, dx) in zip(agents, offsets, strict=True):
            _draw_agent(canvas, state, agent, top + (y + dy) * cell, (x + dx) * cell, radius * cell)
    return canvas.picture()


def _places(count: int, *, burning: bool) -> tuple[list[tuple[float, float]], float]:
    """Middles (y, x) and radius, as shares of a cell, of agents that share it; at the top of a fire, not over it."""
    if burning:
        return [(0.15, (number + 0.5) / count) for number in range(count)], min(0.12, 0.4 / count)
    radius = {1: 0.24, 2: 0.17}.get(count, 0.13)
    offsets = spread(count, 0.25 if count == 2 else 0.3)
    return [(0.46 + dy, 0.5 + dx) for dy, dx in offsets], radius


def _draw_cell(canvas: Canvas, state: Scene, y: int, x: int, top: float, left: float, cell: int) -> None:
    size, intensity, last = int(state.fire[y, x]), int(state.intensity[y, x]), state.num_states - 1
    if size == 0:
        return
    if size < 0:
        burnt = intensity == last
        canvas.rectangle(top, left, cell, cell, _BURNT if burnt else _FOREST)
        trees = [(0.5, 0.5)] if size == -1 else [(0.5, 0.32), (0.5, 0.68), (0.8, 0.5)][:-size]
        for dy, dx in trees:
            _draw_tree(
                canvas, top + dy * cell, left + dx * cell, cell * 0.15, mix(_BURNT, INK, 0.5) if burnt else _TREE
            )
        return
    heat = intensity / max(last - 1, 1)
    canvas.rectangle(top, left, cell, cell, mix(_FOREST, _WARM, 0.75))
    _draw_flame(
        canvas, top + cell * 0.43, left + cell * 0.5, cell * (0.19 + 0.07 * heat), mix((245, 150, 40), _HOT, heat)
    )
    canvas.text(top + cell * 0.48, left + cell * 0.5, str(size), cell * 0.2, WHITE)
    bar = cell * 0.8 / max(last - 1, 1)
    for level in range(last - 1):
        color = mix(_WARM, _HOT, (level + 1) / (last - 1)) if level < intensity else PAPER
        canvas.rectangle(top + cell * 0.84, left + cell * 0.1 + level * bar, cell * 0.09, bar - cell * 0.03, color)


def _draw_tree(canvas: Canvas, y: float, x: float, size: float, color: tuple[int, int, int]) -> None:
    canvas.rectangle(y, x - size * 0.12, size * 0.9, size * 0.24, mix(color, INK, 0.4))
    canvas.polygon([(y - size * 1.3, x), (y + size * 0.4, x - size * 0.8), (y + size * 0.4, x + size * 0.8)], color)


def _draw_flame(canvas: Canvas, y: float, x: float, size: float, color: tuple[int, int, int]) -> None:
    canvas.disc(y + size * 0.3, x, size, color)
    canvas.polygon([(y - size * 1.5, x + size * 0.1), (y + size * 0.1, x - size * 0.98), (y, x + size * 0.95)], color)


def _draw_agent(canvas: Canvas, state: Scene, agent: int, y: float, x: float, radius: float) -> None:
    present = state.present[agent]
    color = agent_color(agent) if present else GREY
    canvas.disc(y, x, radius + max(radius * 0.12, 1), PAPER)
    if present:
        canvas.disc(y, x, radius, color)
    else:
        canvas.disc(y, x, radius, color, hole=radius * 0.84)
    canvas.text(y - radius * 0.1, x, str(agent), radius * 0.9, WHITE if present else GREY)
    dots = min(round(state.power[agent]), 5)
    for dot in range(dots):
        canvas.disc(
            y + radius * 0.65, x + (dot - (dots - 1) / 2) * radius * 0.34, radius * 0.12, WHITE if present else GREY
        )
    bar, left, low = radius * 2.0, x - radius, y + radius * 1.3
    share = min(state.suppressant[agent] / max(state.full, 1e-6), 1.0)
    canvas.rectangle(low - 1, left - 1, radius * 0.36 + 2, bar + 2, INK if present else GREY)
    canvas.rectangle(low, left, radius * 0.36, bar, PAPER)
    canvas.rectangle(low, left, radius * 0.36, bar * share, _WATER)


def text(state: Scene) -> str:
    """Lines: `F2i1` = a fire of size 2 and intensity 1, `t2` = trees of size 2, `x2` burnt out, `.` never burns."""
    rows = []
    here = by_cell(state.places)
    for y in range(state.height):
        row = []
        for x in range(state.width):
            size, intensity = int(state.fire[y, x]), int(state.intensity[y, x])
            kind = "x" if intensity == state.num_states - 1 else "t"
            word = f"F{size}i{intensity}" if size > 0 else (f"{kind}{-size}" if size else ".")
            row.append(
                word + "".join(f"[{agent}]" if state.present[agent] else f"({agent})" for agent in here.get((y, x), []))
            )
        rows.append(row)
    agents = [f"[{i}] present" if present else f"({i}) away" for i, present in enumerate(state.present)]
    tanks = [
        f"{agent}, power {power:g}, suppressant {tank:g}"
        for agent, power, tank in zip(agents, state.power, state.suppressant, strict=True)
    ]
    return "\n".join(["   ".join(_words(state)), table(rows), *tanks])
