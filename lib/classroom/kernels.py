"""How the course speaks to the Jupyter kernels that it starts: through files in a folder of their own.

By default Jupyter looks for five free ports, lets go of them and names them to the kernel, which takes them some
tenths of a second later. Whatever takes one of them in between (a test beside this one, another notebook) leaves a
kernel that dies at its start, or a client that waits for an answer of somebody else's.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from traitlets.config import Config


@contextlib.contextmanager
def by_files() -> Iterator[Config]:
    """Settings for whatever starts kernels, one after another; the files go in the end.

    Without sockets in the file system (Windows) nothing is set, and kernels take ports.
    """
    if os.name != "posix":
        yield Config()
        return
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:  # absolute, and short: a socket's name has limits
        yield Config({"KernelManager": {"transport": "ipc", "ip": os.path.join(folder, "kernel")}})
