"""Pictures of worlds in plain NumPy: a small canvas, and which module draws which environment.

The package of an environment may have a module `render` with three functions: `scene(env, copy)` gives the plain state
of a copy, `draw(scene, cell)` a picture of it (uint8 [H, W, 3]; `cell` = pixels of a cell's side), `text(scene)` words.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module, util
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.base import OpenVectorEnv
from rl_openness.errors import UserError

Color = tuple[int, int, int]
Picture = NDArray[np.uint8]

INK, PAPER, GROUND, LINE, GREY = (38, 42, 48), (250, 249, 246), (238, 235, 226), (208, 204, 194), (150, 152, 156)
WHITE = (255, 255, 255)
TEAM: tuple[Color, ...] = (
    (33, 102, 188),
    (142, 68, 173),
    (0, 137, 123),
    (176, 96, 16),
    (194, 24, 91),
    (84, 110, 122),
    (104, 135, 16),
    (63, 81, 181),
)
"""Colours of agents, by number; told apart from fire, food and prey, and from each other by their number too."""

_PICTURE_SIZE = 480
_SHARP = 3  # pixels drawn per pixel and direction
_GLYPHS = (
    "0:3e5149453e 1:00427f4000 2:4261514946 3:2141454b31 4:1814127f10 5:2745454539 6:3c4a494930 7:0171090503 "
    "8:3649494936 9:064949291e A:7e1111117e B:7f49494936 C:3e41414122 D:7f4141221c E:7f49494941 F:7f09090901 "
    "G:3e4149497a H:7f0808087f I:00417f4100 J:2040413f01 K:7f08142241 L:7f40404040 M:7f020c027f N:7f0408107f "
    "O:3e4141413e P:7f09090906 Q:3e4151215e R:7f09192946 S:4649494931 T:01017f0101 U:3f4040403f V:1f2040201f "
    "W:3f4038403f X:6314081463 Y:0708700807 Z:6151494543 -:0808080808 +:08083e0808 .:0060600000 /:2010080402"
)
_FONT = {glyph[0]: [int(glyph[i : i + 2], 16) for i in range(2, 12, 2)] for glyph in _GLYPHS.split()}
"""Five columns of seven dots each, the lowest bit on top."""


class Canvas:
    """A picture in the making; y goes down, x right, in pixels that may be fractions."""

    def __init__(self, height: float, width: float, color: Color = PAPER) -> None:
        self._dots = np.empty((round(height) * _SHARP, round(width) * _SHARP, 3), dtype=np.uint8)
        self._dots[:] = color

    def picture(self) -> Picture:
        """What was drawn so far, uint8 [H, W, 3]."""
        sums = np.zeros((self._dots.shape[0] // _SHARP, *self._dots.shape[1:]), dtype=np.uint16)
        for row in range(_SHARP):
            sums += self._dots[row::_SHARP]
        whole = np.zeros((len(sums), sums.shape[1] // _SHARP, 3), dtype=np.uint16)
        for column in range(_SHARP):
            whole += sums[:, column::_SHARP]
        picture: Picture = ((whole + _SHARP**2 // 2) // _SHARP**2).astype(np.uint8)
        return picture

    def rectangle(self, y: float, x: float, height: float, width: float, color: Color) -> None:
        """Filled; (y, x) is the upper left corner."""
        top, left = max(round(y * _SHARP), 0), max(round(x * _SHARP), 0)
        self._dots[top : max(round((y + height) * _SHARP), 0), left : max(round((x + width) * _SHARP), 0)] = color

    def frame(self, y: float, x: float, height: float, width: float, thick: float, color: Color) -> None:
        """A rectangle's outline, inside it."""
        self.rectangle(y, x, thick, width, color)
        self.rectangle(y + height - thick, x, thick, width, color)
        self.rectangle(y, x, height, thick, color)
        self.rectangle(y, x + width - thick, height, thick, color)

    def disc(self, y: float, x: float, radius: float, color: Color, *, hole: float = 0.0) -> None:
        """A disc around (y, x), or a ring with a `hole` of that radius."""
        top, left, dy, dx = self._around(y - radius, x - radius, y + radius, x + radius)
        square = (dy - y) ** 2 + (dx - x) ** 2
        self._fill(top, left, (square <= radius**2) & (square >= hole**2), color)

    def polygon(self, corners: Sequence[tuple[float, float]], color: Color) -> None:
        """Filled and convex; corners (y, x) in order."""
        points = np.array(corners)
        top, left, dy, dx = self._around(*points.min(axis=0), *points.max(axis=0))
        sides = [
            (x1 - x0) * (dy - y0) - (y1 - y0) * (dx - x0)
            for (y0, x0), (y1, x1) in zip(points, np.roll(points, -1, axis=0), strict=True)
        ]
        inside = np.all([side >= 0 for side in sides], axis=0) | np.all([side <= 0 for side in sides], axis=0)
        self._fill(top, left, inside, color)

    def line(self, start: tuple[float, float], end: tuple[float, float], thick: float, color: Color) -> None:
        """From (y, x) to (y, x)."""
        along = np.subtract(end, start)
        side = np.array([-along[1], along[0]]) / max(float(np.hypot(*along)), 1e-6) * thick / 2
        corners = np.array([start + side, end + side, end - side, start - side])
        self.polygon([(float(y), float(x)) for y, x in corners], color)

    def text(self, y: float, x: float, words: str, height: float, color: Color = INK, *, center: bool = True) -> None:
        """Digits, capitals and - + . / of that height, centred on (y, x) or beginning there (upper left corner)."""
        dot = height / 7
        if center:
            y, x = y - height / 2, x - text_width(words, height) / 2
        for number, letter in enumerate(words.upper()):
            for column, bits in enumerate(_FONT.get(letter, ())):
                for row in range(7):
                    if bits >> row & 1:
                        self.rectangle(y + row * dot, x + (6 * number + column) * dot, dot, dot, color)

    def _around(self, y0: float, x0: float, y1: float, x1: float) -> tuple[int, int, Any, Any]:
        """First dot of a box, and the coordinates of the centres of its dots as a column and a row."""
        top, left = max(int(y0 * _SHARP), 0), max(int(x0 * _SHARP), 0)
        bottom = min(int(y1 * _SHARP) + 1, self._dots.shape[0])
        right = min(int(x1 * _SHARP) + 1, self._dots.shape[1])
        rows, columns = np.arange(top, max(bottom, top)), np.arange(left, max(right, left))
        return top, left, (rows[:, None] + 0.5) / _SHARP, (columns[None, :] + 0.5) / _SHARP

    def _fill(self, top: int, left: int, mask: NDArray[np.bool_], color: Color) -> None:
        height, width = mask.shape
        self._dots[top : top + height, left : left + width][mask] = color


def text_width(words: str, height: float) -> float:
    """Pixels from the first dot to the last."""
    return max(6 * len(words) - 1, 0) * height / 7


def mix(color: Color, other: Color, share: float) -> Color:
    """`share` of the other colour in a colour."""
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(color, other, strict=True))
    return red, green, blue


def agent_color(number: int) -> Color:
    """The same for an agent in all pictures."""
    return TEAM[number % len(TEAM)]


def board(rows: int, columns: int, cell: int, words: Sequence[str]) -> tuple[Canvas, int]:
    """A canvas with lines of words on top and an empty grid below; the second is the y at which the grid begins."""
    size = max(min(cell * 0.3, 14.0), 7.0)
    width = columns * cell
    fits = [min(size, size * (width - 8) / max(text_width(line, size), 1.0)) for line in words]
    top = round(sum(height * 1.6 for height in fits) + 6)
    canvas = Canvas(top + rows * cell + 1, width + 1)
    y = 5.0
    for line, height in zip(words, fits, strict=True):
        canvas.text(y, 4, line, height, center=False)
        y += height * 1.6
    canvas.rectangle(top, 0, rows * cell, columns * cell, GROUND)
    return canvas, top


def grid_lines(canvas: Canvas, top: int, rows: int, columns: int, cell: int) -> None:
    """Lines between the cells of a board, over what fills the cells."""
    for row in range(rows + 1):
        canvas.rectangle(top + row * cell, 0, 1, columns * cell + 1, LINE)
    for column in range(columns + 1):
        canvas.rectangle(top, column * cell, rows * cell, 1, LINE)


def spread(count: int, radius: float) -> list[tuple[float, float]]:
    """Offsets (y, x) from the middle of a cell at which `count` things that share it are drawn."""
    if count == 1:
        return [(0.0, 0.0)]
    angles = 2 * np.pi * (np.arange(count) / count) - (np.pi if count == 2 else np.pi / 2)
    return [(float(np.sin(a)) * radius, float(np.cos(a)) * radius) for a in angles]


def by_cell(places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    """Who (by position in `places`) is on which cell."""
    cells: dict[tuple[int, int], list[int]] = {}
    for number, place in enumerate(places):
        cells.setdefault(place, []).append(number)
    return cells


def table(rows: Sequence[Sequence[str]]) -> str:
    """Cells of equal width, one line a row."""
    width = max((len(cell) for row in rows for cell in row), default=0)
    return "\n".join(" ".join(cell.ljust(width) for cell in row).rstrip() for row in rows)


def _module(env: OpenVectorEnv) -> Any:
    """The module `render` beside the environment's class, or beside one that it derives from."""
    for kind in type(env).__mro__:
        package = kind.__module__.rpartition(".")[0]
        if package and package != __package__:
            try:
                found = util.find_spec(f"{package}.render")
            except ModuleNotFoundError:  # not a package
                found = None
            if found is not None:
                return import_module(f"{package}.render")
    raise UserError(f"environment {env.spec.name!r} cannot be drawn: its package has no module `render`")


def picture(env: OpenVectorEnv, copy: int = 0, cell: int | None = None) -> Picture:
    """A copy's world now, uint8 [H, W, 3]; about 480 pixels wide unless a cell's side is given.

    Raises UserError if nothing draws such environments.
    """
    module = _module(env)
    state = module.scene(env, copy)
    if cell is None:
        cell = min(max(_PICTURE_SIZE // max(state.height, state.width), 16), 120)
    drawn: Picture = module.draw(state, cell)
    return drawn


def world_in_words(env: OpenVectorEnv, copy: int = 0) -> str:
    """The same as lines of text."""
    module = _module(env)
    words: str = module.text(module.scene(env, copy))
    return words
