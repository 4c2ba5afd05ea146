"""Kernels that are forks of one process: each begins as a fresh one, and none outlives its notebook."""

import os
import sys

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

from classroom import kernels
from classroom.grading import warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux alone")


@pytest.fixture(scope="module", autouse=True)
def warm_process():
    before = os.environ.get("JUPYTER_PATH")
    with warm.kernels():
        yield
    assert os.environ.get("JUPYTER_PATH") == before


def run(*sources: str, **options) -> list[str]:
    """What each cell prints, or the name of its error."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    with kernels.by_files() as transport:
        NotebookClient(notebook, kernel_name="python3", allow_errors=True, config=transport, **options).execute()
    return ["".join(out.get("text") or out.get("ename") for out in cell.outputs).strip() for cell in notebook.cells]


def test_a_kernel_has_torch_and_nothing_of_the_one_before(tmp_path):
    look = "import sys, os, torch\nprint(os.getpid(), torch.rand(1).item(), 'mine' in dir(torch), os.getcwd())"
    folder = {"metadata": {"path": str(tmp_path)}}
    loaded, first, _ = run("import sys; print('torch' in sys.modules)", look, "torch.mine = 1", resources=folder)
    _, second = run("pass", look, resources=folder)
    assert loaded == "True"
    assert first.split()[0] != second.split()[0]
    assert first.split()[1:] == second.split()[1:] == [first.split()[1], "False", str(tmp_path)]


def test_a_kernel_gets_the_environment_of_its_time(monkeypatch):
    monkeypatch.setenv("PLAINFORMER_TRIAL", "now")
    assert run("import os; print(os.environ['PLAINFORMER_TRIAL'])") == ["now"]


def test_a_cell_that_takes_too_long_is_interrupted_and_the_next_one_runs():
    cells = ("import time; time.sleep(600)", "print('after')")
    seconds = {cells[0]: 1, cells[1]: 120}
    assert run(*cells, timeout_func=lambda cell: seconds[cell.source], interrupt_on_timeout=True)[1] == "after"


def test_a_kernel_ends_with_its_notebook(wait_until, is_gone):
    kernel = int(run("import os; print(os.getpid())")[0])
    wait_until(lambda: is_gone(kernel))


def test_a_kernel_that_dies_is_known_to_be_dead():
    with pytest.raises(DeadKernelError):
        run("import os; os._exit(1)")


def test_a_program_that_a_kernel_starts_gives_its_exit_code():
    assert run("import subprocess, sys; print(subprocess.call([sys.executable, '-c', 'exit(3)']))") == ["3"]
