import importlib.util
from pathlib import Path

import numpy as np

EXAMPLE = Path(__file__).parents[3] / "docs/examples/stock_ppo_wildfire.py"


def test_the_example_of_stock_ppo_runs(ray_session, capsys):
    spec = importlib.util.spec_from_file_location("stock_ppo_wildfire", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    before, after = example.main(["--setup", "2x3/S1", "--iterations", "2"])
    assert np.isfinite([before, after]).all()
    assert "after 2 iterations" in capsys.readouterr().out
