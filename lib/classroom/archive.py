"""The readers' site in one file: a zip archive whose folder opens by double click, and may be put on any web server.

`python -m classroom.archive` (`make site`) builds the site and packs it. The same pages give the same bytes:
names are sorted, and every date is the earliest that a zip archive can hold.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path

from classroom.site import ROOT, add_places, built_pages

FOLDER = "plainformer"  # what the archive unpacks to
LICENCES = ("LICENSE", "LICENSE-text")
START = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>plainformer</title><meta http-equiv="refresh" content="0; url=index.html"></head>
<body><p><a href="index.html">Open the book</a></p></body>
</html>
"""


def pack(site: Path, target: Path, licences: Path = ROOT) -> None:
    """Write the pages of `site` into the archive `target`, with a file at the top that says where to begin."""
    files = {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}
    files = {name: content for name, content in files.items() if not name.startswith(".")}  # what the builder notes
    files |= {name: (licences / name).read_bytes() for name in LICENCES if (licences / name).is_file()}
    files["open-me.html"] = START.encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}")  # of 1 January 1980
            entry.external_attr = 0o644 << 16
            entry.create_system = 3  # or the bytes would tell the system it was made on
            archive.writestr(entry, files[name], zipfile.ZIP_DEFLATED, compresslevel=9)


def main(arguments: list[str] | None = None) -> int:
    """Parse the command line, build the site unless it is given, pack it, and say where the archive is."""
    parser = argparse.ArgumentParser(prog="python -m classroom.archive", description="Pack the site into one file.")
    add_places(parser, "site")
    options = parser.parse_args(arguments)
    options.source = options.source.resolve()
    target = (options.output or options.source).resolve() / "_build" / "site" / f"{FOLDER}.zip"
    with built_pages(parser, options) as site:
        pack(site, target)
    print(f"Unpack {target} ({target.stat().st_size / 1e6:.1f} MB) and open {FOLDER}/open-me.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
