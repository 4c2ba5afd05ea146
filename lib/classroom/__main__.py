"""The command line of the classroom: python -m classroom COMMAND ..."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

# A command is a module with `add_arguments(parser)` and `run(options)`, which returns the exit code.
COMMANDS = {
    "doctor": "classroom.doctor",
    "grade": "classroom.grading.grade",
    "export": "classroom.grading.exports",
    "report": "classroom.grading.report",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; without one, print what there is."""
    arguments = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a console that cannot show a character is no reason to stop
    parser = argparse.ArgumentParser(prog="python -m classroom", description="Before and after an exercise.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    # a student's doctor does not wait for what an instructor's commands import
    chosen = [name for name in COMMANDS if name in arguments[:1]] or COMMANDS
    modules = {name: importlib.import_module(COMMANDS[name]) for name in chosen}
    for name, module in modules.items():
        about = module.__doc__.partition(": ")[2]
        module.add_arguments(commands.add_parser(name, help=about, description=about[0].upper() + about[1:]))
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        done = modules[options.command].run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return done


if __name__ == "__main__":
    sys.exit(main())
