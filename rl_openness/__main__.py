"""`python -m rl_openness`."""

from rl_openness.cli import main

main()
