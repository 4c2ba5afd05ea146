"""`make chapters`: one clean run, one canonical form, and no half-written file."""

import os

import nbformat
import pytest

from classroom import notebooks


def notebook(*sources: str):
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return book


@pytest.fixture
def stored(tmp_path):
    def store(*sources: str):
        path = tmp_path / "07_mlp.ipynb"
        nbformat.write(notebook(*sources), path)
        return path

    return store


def test_the_canonical_form_forgets_the_run_and_the_editor():
    book = notebook("1 + 1", "print('a')", "")
    book.cells.insert(1, nbformat.v4.new_markdown_cell("é"))
    book.metadata = {"widgets": {"state": {}}, "kernelspec": {"name": "other"}, "language_info": {"version": "3.12.1"}}
    first, _, second, _ = book.cells
    first.execution_count, second.execution_count = 7, 12
    first.metadata = {"execution": {"iopub.status.busy": "now"}, "tags": ["hide-input"], "collapsed": True}
    first.outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "2"}, execution_count=7)]
    second.outputs = [nbformat.v4.new_output("stream", text=t, name="stdout") for t in ("a", "\n")]
    result = notebooks.canonical(book, "07_mlp")
    assert [cell.id for cell in result.cells] == ["07_mlp-00", "07_mlp-01", "07_mlp-02", "07_mlp-03"]
    assert [cell.get("execution_count") for cell in result.cells] == [1, None, 2, None]
    assert result.cells[0].outputs[0].execution_count == 1
    assert result.cells[0].metadata == {"tags": ["hide-input"], "jupyter": {"source_hidden": True}}  # in JupyterLab too
    assert result.cells[2].outputs == [{"output_type": "stream", "name": "stdout", "text": "a\n"}]
    assert set(result.metadata) == {"kernelspec", "language_info"} and result.metadata.language_info == {
        "name": "python"
    }

    text = notebooks.text(result)
    assert "é" in text and text.endswith("}\n") and not text.endswith("\n\n") and '\n "cells"' in text
    again = nbformat.reads(text, as_version=4)
    assert notebooks.text(notebooks.canonical(again, "07_mlp")) == text


def test_what_nbgrader_needs_is_kept():
    book = notebook("1")
    kept = {"nbgrader": {"grade_id": "x"}, "deletable": False, "editable": False}
    book.cells[0].metadata = dict(kept)
    assert notebooks.canonical(book, "a").cells[0].metadata == kept


def test_a_name_that_cannot_stand_in_a_cell_id_is_refused():
    with pytest.raises(ValueError, match="my chapter"):
        notebooks.canonical(notebook("1"), "my chapter")


def test_a_run_stores_outputs_once(stored, capsys):
    path = stored("import os\nx = os.path.basename(os.getcwd())", "print(x, os.environ['OMP_NUM_THREADS'])")
    assert notebooks.main([str(path)]) == 0
    assert nbformat.read(path, as_version=4).cells[1].outputs[0].text == f"{path.parent.name} 1\n"
    before = path.read_bytes(), path.stat().st_mtime_ns
    assert notebooks.main([str(path)]) == 0
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert "unchanged" in capsys.readouterr().out
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(os.name != "posix", reason="kernels take ports there")
def test_a_kernel_takes_no_port_that_another_program_may_have_taken_first(stored):
    path = stored("from ipykernel.connect import get_connection_info", "get_connection_info(unpack=True)['transport']")
    assert notebooks.main([str(path)]) == 0
    assert nbformat.read(path, as_version=4).cells[1].outputs[0].data["text/plain"] == "'ipc'"


def test_a_write_that_breaks_off_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "old.ipynb"
    path.write_text("old")

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(notebooks.os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        notebooks.write_if_changed(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("bad", "shown"), [("1 / 0", "ZeroDivisionError"), ("import warnings\nwarnings.warn('old name')", "old name")]
)
def test_a_cell_that_fails_or_warns_leaves_the_file_alone(stored, capsys, bad, shown):
    path = stored("x = 1", bad, "print(x)")
    before = path.read_bytes()
    assert notebooks.main([str(path)]) == 1
    assert path.read_bytes() == before
    message = capsys.readouterr().err
    assert path.name in message and "cell 1" in message and bad.splitlines()[0] in message and shown in message


def test_check_reports_form_without_running(stored, capsys):
    path = stored("raise SystemExit('this must not run')")
    before = path.read_bytes()
    assert notebooks.main(["--check", str(path)]) == 1
    assert path.read_bytes() == before and "not in canonical form" in capsys.readouterr().out
    path.write_text(notebooks.text(notebooks.canonical(notebooks.read(path), path.stem)), encoding="utf-8")
    assert notebooks.main(["--check", str(path)]) == 0


def test_what_is_no_notebook_is_named(tmp_path, capsys):
    assert notebooks.main([str(tmp_path / "none.ipynb")]) == 1
    assert "none.ipynb" in capsys.readouterr().err
    (tmp_path / "bad.ipynb").write_text('{"cells": [')
    assert notebooks.main(["--check", str(tmp_path / "bad.ipynb")]) == 1
    assert "bad.ipynb" in capsys.readouterr().err
