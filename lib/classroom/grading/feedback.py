"""What a student's feedback page must not show: hidden tests, and tracebacks that quote them."""

from __future__ import annotations

from nbgrader.preprocessors import ClearHiddenTests
from nbgrader.utils import is_grade


class StripHiddenTests(ClearHiddenTests):
    """Takes hidden tests out of the graded cells of a feedback page (nbgrader's own pages show them)."""

    def preprocess_cell(self, cell, resources, cell_index):
        """Only test cells: a student's own cell may say whatever it likes."""
        if not is_grade(cell):
            return cell, resources
        whole = cell.source
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if cell.source != whole:
            for output in cell.outputs:
                # a failed check renders as its own message; any other traceback quotes lines of the cell
                if output.output_type == "error" and output.ename != "CheckFailed":
                    output.traceback = [f"{output.ename}: {output.evalue}"]
        return cell, resources
