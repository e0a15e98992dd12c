"""Numbers for a table of episodes: mean return, reward per fight, share of no-ops, events."""

from __future__ import annotations

import math

import pandas as pd

from rl_openness.evaluation.rollout import EPISODE_COLUMNS


def summarise(frame: pd.DataFrame) -> dict[str, float]:
    """Summary of a table from `play_episodes` (at least one row).

    * `episodes`, `return_mean`, `return_std` (sample standard deviation, NaN for one episode), `length_mean`;
    * `team_size_mean`: present agents, mean over all steps;
    * where agents choose tasks, `reward_per_fight`: mean over episodes of return / fights; episodes without a fight
      have no such ratio, they are left out and counted in `reward_per_fight_excluded` (NaN if none is left);
    * `reward_per_fight_pooled`: summed return / summed fights (NaN without any fight);
    * `noop_percent`: 100 x no-op agent-steps / all agent-steps, steps of away agents included;
    * the mean per episode of every event column under its own name (`burnouts`, `putouts`, `ignitions`, ...).
    """
    summary = {
        "episodes": float(len(frame)),
        "return_mean": float(frame["return"].mean()),
        "return_std": float(frame["return"].std()),
        "length_mean": float(frame["length"].mean()),
        "team_size_mean": float((frame["agent_steps"] - frame["absent_steps"]).sum() / frame["length"].sum()),
    }
    if "fights" in frame:
        summary |= _fighting(frame)
    events = [name for name in frame.columns if name not in EPISODE_COLUMNS]
    return summary | {name: float(frame[name].mean()) for name in events}


def _fighting(frame: pd.DataFrame) -> dict[str, float]:
    fought = frame[frame["fights"] > 0]
    fights = float(frame["fights"].sum())
    return {
        "reward_per_fight": float((fought["return"] / fought["fights"]).mean()),
        "reward_per_fight_excluded": float(len(frame) - len(fought)),
        "reward_per_fight_pooled": float(frame["return"].sum()) / fights if fights else math.nan,
        "noop_percent": 100.0 * float(frame["noops"].sum()) / float(frame["agent_steps"].sum()),
    }


def percent_of_optimum(ret: float, noop_ret: float, optimum: float) -> float:
    """100 x (ret - noop_ret) / (optimum - noop_ret): 0 = as good as doing nothing, 100 = optimal; NaN if both agree."""
    room = optimum - noop_ret
    return 100.0 * (ret - noop_ret) / room if room else math.nan
