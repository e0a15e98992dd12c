"""Code of users by name: found in the present folder, and what is wrong with a name in one line."""

import sys

import pytest

from rl_openness.errors import UserError
from rl_openness.plugins import find_plugin, is_plugin


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The present folder, not yet on the path where modules are looked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    return tmp_path


def test_found_in_the_present_folder_and_among_installed_modules(folder):
    (folder / "plugin_here.py").write_text("def make():\n    return 3\n")
    assert find_plugin("plugin_here:make")() == 3
    assert find_plugin("os.path:join")("a", "b") == "a/b"


def test_a_file_does_not_stand_in_for_an_installed_module(folder):
    (folder / "colorsys.py").write_text("mine = 1\n")
    assert callable(find_plugin("colorsys:rgb_to_hsv"))


@pytest.mark.parametrize("name", ["a:b", "a.b_1:c", "_x:y"])
def test_names_of_plugins(name):
    assert is_plugin(name)


@pytest.mark.parametrize("name", ["a", "a:", ":b", "a:b:c", "./a:b", "a.:b", "a:b.c", "1a:b", "a b:c", "C:\\x"])
def test_names_of_other_things(name):
    assert not is_plugin(name)
    with pytest.raises(UserError, match="must have the form module:attribute"):
        find_plugin(name)


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("", "plugin_none:make", "plugin_none:make: module 'plugin_none' cannot be imported: No module named"),
        ("def hunter(): pass", "plugin_a:huntr", "module 'plugin_a' has no attribute 'huntr'; did you mean 'hunter'?"),
        ("import not_there_x", "plugin_b:f", "cannot be imported: No module named 'not_there_x'"),
        ("def f(:\n", "plugin_c:f", "cannot be imported: SyntaxError: "),
        ("1 / 0", "plugin_d:f", "cannot be imported: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(0)", "plugin_e:f", "cannot be imported: SystemExit: 0"),
        ("def __getattr__(name): raise RuntimeError('no')", "plugin_f:f", "plugin_f:f: RuntimeError: no"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(folder, text, name, words):
    if text:
        (folder / f"{name.partition(':')[0]}.py").write_text(text)
    with pytest.raises(UserError) as told:
        find_plugin(name)
    assert words in str(told.value)
    assert "\n" not in str(told.value)
