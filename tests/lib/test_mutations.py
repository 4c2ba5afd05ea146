"""Planted faults, as data in mutations.json: each is caught by the test that stands beside it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FAULTS = json.loads((HERE / "mutations.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def noticed(tmp_path_factory) -> dict[str, tuple[int, str]]:
    if sys.platform == "win32":
        pytest.skip("plants its faults in forked processes, which this system does not have")
    results = tmp_path_factory.mktemp("mutations") / "results.json"
    done = subprocess.run([sys.executable, HERE / "plant.py", results], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(results.read_text(encoding="utf-8"))


def test_the_list_is_long_and_covers_the_library():
    assert len(FAULTS) >= 30 and len({fault["what"] for fault in FAULTS}) == len(FAULTS)
    assert len({fault["file"] for fault in FAULTS}) >= 12


@pytest.mark.parametrize("what", [fault["what"] for fault in FAULTS])
def test_a_planted_fault_is_caught(noticed, what):
    code, said = noticed[what]
    assert code == 1, f"pytest ended with {code}, where 1 says that a test failed:\n{said}"  # others: no such test, …
