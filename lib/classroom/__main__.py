"""The command line of the classroom: python -m classroom COMMAND ..."""

from __future__ import annotations

import argparse
import os
import sys

from classroom import doctor

# A command is a module with `add_arguments(parser)` and `run(options)`, which returns the exit code.
COMMANDS = {"doctor": doctor}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; without one, print what there is."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a console that cannot show a character is no reason to stop
    parser = argparse.ArgumentParser(prog="python -m classroom", description="Before and after an exercise.")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in COMMANDS.items():
        about = module.__doc__.partition(": ")[2]
        module.add_arguments(commands.add_parser(name, help=about, description=about.capitalize()))
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    try:
        done = COMMANDS[options.command].run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    return done


if __name__ == "__main__":
    sys.exit(main())
