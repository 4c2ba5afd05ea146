"""The first cell of an exercise: is this the course's environment?"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

from classroom.checks.expect import CheckFailed, passed

PYTHON = (3, 11)
PLAINFORMER = "0.1"  # the series this release's exercises were written for


def ready() -> None:
    """Say that the exercise can run here, or what to do so that it can."""
    cure = "Start the exercises with `make lab`, or choose the kernel of the course's .venv (menu Kernel)."
    if sys.version_info < PYTHON:
        raise CheckFailed(f"This kernel runs Python {sys.version.split()[0]}; the course needs 3.11 or newer.\n{cure}")
    try:
        found = version("plainformer")
    except PackageNotFoundError:
        raise CheckFailed(f"The package plainformer is not installed for this kernel.\n{cure}") from None
    if found.split(".")[:2] != PLAINFORMER.split("."):
        raise CheckFailed(
            f"plainformer {found} is installed; these exercises need {PLAINFORMER}.x.\n"
            "Bring the course up to date (`git pull`, then `make lab`), and take a fresh copy of the exercise."
        )
    passed("ready")
