"""JupyterLab with the student's own copy of the exercises: `python -m classroom.lab` (`make lab`).

Every exercise of `exercises/` is copied into `work/` once. A file that is already there is the student's
and stays as it is, whatever happens to the released one. Arguments that are not listed by `--help`
go to JupyterLab, for example `--no-browser`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = ".released.json"  # in the work folder: which release each copied file came from


def digest(file: Path) -> str:
    """A fingerprint of the file's bytes."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def hand_out(exercises: Path, work: Path) -> list[str]:
    """Copy what the student does not have yet; return one line an exercise that says what was done.

    A released file that is no longer the one the student's copy was made from is named, and so is its place.
    """
    work.mkdir(parents=True, exist_ok=True)
    record = work / RECORD
    taken = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    lines = []
    for folder in sorted(path for path in exercises.iterdir() if path.is_dir()):
        released = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        released = [path for path in released if ".ipynb_checkpoints" not in path.parts]
        copied = kept = 0
        changed = []
        for file in released:
            name = file.relative_to(exercises).as_posix()
            target = work / name
            if target.exists():
                kept += 1
                # without a record, only an unedited copy can be told from an older release: compare the bytes
                if taken.get(name, digest(target)) != digest(file):
                    changed.append(file)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)
                taken[name] = digest(file)
                copied += 1
        place = f"{work.name}/{folder.name}"
        if copied and not kept:
            lines.append(f"new   {place}")
        elif kept:
            lines.append(f"kept  {place}: your copy" + (f", {copied} missing file(s) added" if copied else ""))
        lines += [
            f"      {file} differs from the release that your copy was made from. "
            f"To get it, rename your file in {place} and start again."
            for file in changed
        ]
    record.write_text(json.dumps(taken, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return lines


def main(arguments: list[str] | None = None) -> None:
    """Hand the exercises out, then run JupyterLab in the work folder until the student stops it."""
    parser = argparse.ArgumentParser(
        prog="python -m classroom.lab",
        description="Open JupyterLab with your own copy of the exercises. Other arguments go to JupyterLab.",
    )
    parser.add_argument("--exercises", type=Path, default=ROOT / "exercises", help="released (%(default)s)")
    parser.add_argument("--work", type=Path, default=ROOT / "work", help="your copies (%(default)s)")
    parser.add_argument("--copy-only", action="store_true", help="copy and stop: start no JupyterLab")
    options, passed_on = parser.parse_known_args(arguments)
    exercises, work = options.exercises.resolve(), options.work.resolve()
    if not exercises.is_dir():
        parser.error(f"no folder {exercises}: --exercises is where the released exercises lie")

    print(f"Your exercises are in {work}")
    print("\n".join(hand_out(exercises, work)) or f"No exercise is released in {exercises} yet.", flush=True)
    if options.copy_only:
        return
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        passed_on.append("--allow-root")  # in a container root is the only user
    # nbgrader's Validate button reads the time limits of nbgrader_config.py from the current folder
    os.chdir(ROOT)
    from jupyterlab.labapp import LabApp  # takes a second, and --copy-only does not need it

    LabApp.launch_instance([f"--ServerApp.root_dir={work}", *passed_on])


if __name__ == "__main__":
    main()
