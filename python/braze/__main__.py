"""The command line tools of Braze, which the wheel brings: `braze` and `braze-run`."""

import os
import sys


def _become(name: str) -> None:
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    os.execv(path, [name, *sys.argv[1:]])


def braze() -> None:
    _become("braze")


def braze_run() -> None:
    _become("braze-run")


if __name__ == "__main__":
    braze()
