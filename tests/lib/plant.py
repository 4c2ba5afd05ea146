"""Plants the faults of mutations.json in a copy of the library, one at a time, and says which tests noticed.

    python tests/lib/plant.py RESULTS.json [WORD]

writes {"what": [exit code of pytest, its last lines]}; a WORD picks the faults whose description holds it.
What the tests import is imported once, before the library: each fault then costs a fork and one test.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAULTS = json.loads((Path(__file__).parent / "mutations.json").read_text(encoding="utf-8"))


def plant(fault: dict, folder: Path) -> Path:
    """A copy of the library with the fault in it. The text to replace must stand in the file exactly once."""
    lib = folder / "lib"
    shutil.copytree(ROOT / "lib" / "plainformer", lib / "plainformer", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / fault["file"]
    text = file.read_text(encoding="utf-8")
    if text.count(fault["old"]) != 1:
        raise SystemExit(
            f"{fault['what']}: {fault['old']!r} stands {text.count(fault['old'])} times in {fault['file']}."
        )
    file.write_text(text.replace(fault["old"], fault["new"]), encoding="utf-8")
    return lib


def run(fault: dict) -> tuple[int, str]:
    """Runs the fault's test against the faulty copy in a child; (pytest's exit code, what it said last)."""
    with tempfile.TemporaryDirectory() as folder:
        lib, said = plant(fault, Path(folder)), Path(folder) / "said"
        child = os.fork()
        if child == 0:
            with open(said, "w", encoding="utf-8") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                sys.path.insert(0, str(lib))
                os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
                code = 99
                try:
                    code = int(
                        pytest.main([*fault["test"].split(), "-x", "-q", "--no-header", "-p", "no:cacheprovider"])
                    )
                finally:
                    out.flush()
                    os._exit(code)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), "\n".join(said.read_text(encoding="utf-8").splitlines()[-4:])


if __name__ == "__main__":
    import _hypothesis_pytestplugin  # noqa: F401
    import beartype  # noqa: F401
    import hypothesis.strategies  # noqa: F401
    import jaxtyping  # noqa: F401
    import nbval.plugin  # noqa: F401
    import numpy  # noqa: F401
    import pytest
    import torch
    import torch.utils.checkpoint
    import torch.utils.flop_counter
    import transformers.models.bert.modeling_bert
    import transformers.models.gpt2.modeling_gpt2
    import transformers.models.llama.modeling_llama
    import transformers.models.mistral.modeling_mistral
    import transformers.models.mixtral.modeling_mixtral  # noqa: F401

    os.chdir(ROOT)
    torch.set_num_threads(1)
    word = sys.argv[2] if len(sys.argv) > 2 else ""
    results = {fault["what"]: run(fault) for fault in FAULTS if word in fault["what"]}
    Path(sys.argv[1]).write_text(json.dumps(results, indent=1), encoding="utf-8")
