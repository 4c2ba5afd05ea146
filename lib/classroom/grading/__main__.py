"""The command line: ``python -m classroom.grading release [NAME]`` and ``... demo [NAME]``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from classroom.grading import course
from classroom.grading.course import ROOT, GradingFailed
from classroom.grading.demo import grade, table
from classroom.grading.release import release

DEMO = ROOT / "grading" / "demo"


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, release or grade, and say where the result lies."""
    parser = argparse.ArgumentParser(prog="python -m classroom.grading", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    releasing = commands.add_parser("release", help="generate exercises/ from solutions/")
    releasing.add_argument("name", nargs="?", help="one assignment, such as 09_parameters (default: all)")
    releasing.add_argument("--force", action="store_true", help="overwrite an exercise that somebody wrote into")
    grading = commands.add_parser("demo", help="grade the demonstration class of an assignment")
    grading.add_argument("name", nargs="?", default="09_parameters", help="the assignment (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        return _release(options.name, options.force) if options.command == "release" else _demo(options.name)
    except GradingFailed as error:
        print(error, file=sys.stderr)
        return 1


def _release(name: str | None, force: bool) -> int:
    for assignment in [course.known(name)] if name else course.assignments():
        changed = release(assignment, force, course.teachers_gradebook())
        print(f"exercises/{assignment}: {'wrote ' + ', '.join(changed) if changed else 'unchanged'}")
    return 0


def _demo(assignment: str) -> int:
    print(f"Grading the demonstration class of {assignment} ...", flush=True)
    folder = DEMO
    rows = grade(assignment, folder)
    print(table(rows))
    pages = sorted((folder / "feedback").glob(f"*/{assignment}/*.html"))
    ok = sum(row.as_expected for row in rows)
    print(f"\n{ok} of {len(rows)} submissions have the expected marks.")
    print(f"Marks:    {_shown(folder / 'marks.csv')}")
    print(f"Feedback: {len(pages)} pages, such as {_shown(pages[0]) if pages else 'none'}")
    print(f"Log:      {_shown(folder / 'nbgrader.log')}")
    return 0 if ok == len(rows) == len(pages) else 1


def _shown(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


if __name__ == "__main__":
    sys.exit(main())
