from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from rl_openness.envs.adapters.pettingzoo import parallel_env
from rl_openness.envs.foraging import render as foraging
from rl_openness.envs.registry import make_environment
from rl_openness.envs.render import Canvas, picture, world_in_words
from rl_openness.envs.wildfire import render as wildfire
from rl_openness.envs.wolfpack import render as wolfpack
from rl_openness.errors import UserError

WORLDS = [
    ("wildfire", {"setup": "2x3/S1"}, wildfire),
    ("wildfire", {"setup": "5x5/S3", "team_size": 9}, wildfire),
    ("foraging", {"team_size": 5}, foraging),
    ("foraging", {"controlled": "all", "size": 20}, foraging),
    ("wolfpack", {}, wolfpack),
    ("wolfpack", {"controlled": "all", "num_prey": 5}, wolfpack),
]


@pytest.mark.parametrize(("name", "options", "module"), WORLDS)
def test_a_picture_is_a_function_of_the_state(name, options, module):
    env = make_environment(name, 3, options)
    for _ in range(5):
        env.step(np.full(len(env.observe().present), -1))
    state = module.scene(env, 1)
    drawn = module.draw(state)
    assert drawn.dtype == np.uint8
    assert drawn.shape[1:] == (state.width * 48 + 1, 3)
    assert drawn.shape[0] > state.height * 48
    assert_array_equal(drawn, module.draw(state))
    assert module.text(state) == world_in_words(env, 1)
    whole = picture(env, 1)
    assert 300 <= whole.shape[1] <= 600
    for copy in (0, 2):
        if module.text(module.scene(env, copy)) != module.text(state):
            assert (picture(env, copy) != whole).any()
    assert picture(env, 1, cell=10).shape[1] == state.width * 10 + 1


@pytest.mark.parametrize("render_mode", ["rgb_array", "ansi"])
@pytest.mark.parametrize(("name", "options", "module"), WORLDS[1::2])
def test_views_draw_every_step(name, options, module, render_mode):
    view = parallel_env(name, "leave", render_mode, **options)
    obs, _ = view.reset(seed=0)
    rng, shapes = np.random.default_rng(0), set()
    for _ in range(10):
        actions = {agent: rng.choice(np.flatnonzero(obs[agent]["action_mask"])) for agent in view.agents}
        obs, *_ = view.step(actions)
        shapes.add(np.shape(view.render()))
    assert len(shapes) == 1


def test_what_matters_in_a_wildfire_can_be_seen():
    env = make_environment("wildfire", 1, {"setup": "3x3/S3"})
    state = wildfire.scene(env)
    first = wildfire.draw(state)

    def differs(**changes):
        return (wildfire.draw(replace(state, **changes)) != first).any()

    burnt, less, smaller = (np.array(state.fire) for _ in range(3))
    burnt[0, 1], smaller[0, 1] = -2, 1
    top, out = np.array(state.intensity), np.array(state.intensity)
    top[0, 1], out[0, 1] = 3, 4
    assert differs(fire=smaller)
    assert differs(fire=burnt)
    assert differs(intensity=top)
    assert not differs(fire=less)
    assert (wildfire.draw(replace(state, fire=burnt)) != wildfire.draw(replace(state, fire=burnt, intensity=out))).any()
    assert differs(suppressant=[2.0, 1.0, 2.0])
    assert differs(power=[2.0, 1.0, 1.0])
    assert differs(present=[True, False, True])
    assert wildfire.text(replace(state, fire=burnt, intensity=out)).splitlines() == [
        "wildfire   step 0/100   3 fires   3/3 present",
        ".[0] x2   t1",
        "F2i2 .[1] F2i2",
        "t1   F2i2 .[2]",
        "[0] present, power 1, suppressant 2",
        "[1] present, power 1, suppressant 2",
        "[2] present, power 1, suppressant 2",
    ]


def test_words_for_players_and_wolves():
    one = foraging.Scene(
        height=4,
        width=4,
        numbers=[0, 7],
        places=[(0, 0), (1, 2)],
        levels=[1, 2],
        foods=[(2, 1)],
        food_levels=[3],
        learner=True,
        step=4,
        max_steps=50,
    )
    assert foraging.text(one).splitlines() == [
        "foraging   step 4/50   1 food   2 players",
        "0:L1 .    .    .",
        ".    .    7:L2 .",
        ".    f3   .    .",
        ".    .    .    .",
        "player 0 is the learner",
    ]
    two = wolfpack.Scene(
        height=2,
        width=3,
        numbers=[0, 3],
        places=[(0, 0), (1, 2)],
        prey=[(0, 1), (1, 2)],
        facing=[1, 3],
        alive=[False, True],
        learner=False,
        step=9,
        max_steps=200,
    )
    assert wolfpack.text(two).splitlines() == [
        "wolfpack   step 9/200   2 predators   2 prey",
        "0  x  .",
        ".  .  <3",
    ]
    assert (wolfpack.draw(two) != wolfpack.draw(replace(two, alive=[True, True]))).any()
    assert (wolfpack.draw(two) != wolfpack.draw(replace(two, facing=[1, 2]))).any()
    assert (foraging.draw(one) != foraging.draw(replace(one, levels=[2, 2]))).any()


def test_shapes_stay_inside_the_canvas():
    canvas = Canvas(10, 20)
    canvas.disc(0, 0, 30, (0, 0, 0))
    canvas.polygon([(-5, -5), (-5, 90), (90, 40)], (9, 9, 9))
    canvas.line((-3, 4), (40, 4), 2, (255, 0, 0))
    canvas.frame(-2, 3, 40, 5, 1, (0, 255, 0))
    canvas.text(2, 18, "AZ 09 ?", 7)
    assert canvas.picture().shape == (10, 20, 3)


def test_a_subclass_is_drawn_and_an_environment_without_pictures_says_so():
    env = make_environment("wildfire", 1)
    first = picture(env)
    env.__class__ = type("Mine", (type(env),), {"__module__": "__main__"})
    assert_array_equal(picture(env), first)
    bare = type("Bare", (), {"spec": env.spec, "__module__": "rl_openness.files"})()
    with pytest.raises(UserError, match="environment 'wildfire' cannot be drawn: its package has no module `render`"):
        picture(bare)
