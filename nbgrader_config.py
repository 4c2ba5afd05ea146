"""nbgrader's settings for this course: one source of exercises, one release, one folder for everything produced.

solutions/NN_stem/   source, with answers and hidden tests      (committed)
exercises/NN_stem/   release, generated from it                 (committed, never edited)
grading/             submitted, autograded, feedback, gradebook (git-ignored: students' data)
"""

from pathlib import Path

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.preprocessors import GetGrades

from classroom.grading.feedback import StripHiddenTests
from classroom.grading.formgrader import FormgraderPage
from classroom.grading.sanitising import Harmless

c = get_config()

root = Path(__file__).resolve().parent
(root / "grading").mkdir(exist_ok=True)  # SQLite makes its file, but not the folder of it

c.CourseDirectory.course_id = "plainformer"
c.CourseDirectory.root = str(root)
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"
c.CourseDirectory.submitted_directory = "grading/submitted"
c.CourseDirectory.autograded_directory = "grading/autograded"
c.CourseDirectory.feedback_directory = "grading/feedback"
c.CourseDirectory.solution_directory = "grading/solution"
# PostgreSQL instead (pip install "psycopg[binary]"): "postgresql+psycopg://user:password@host/plainformer"
c.CourseDirectory.db_url = f"sqlite:///{(root / 'grading' / 'gradebook.db').as_posix()}"
c.CourseDirectory.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__", ".pytest_cache", ".DS_Store"]

# nbgrader's exchange, for students who all work on this machine: a folder that everybody may write to.
# c.Exchange.root = "/srv/nbgrader/exchange"
c.Exchange.assignment_dir = str(root / "work")  # where `make lab` puts a student's copies

# what stands where an answer was taken out
c.ClearSolutions.code_stub = {
    "python": "# YOUR ANSWER HERE: write your lines and delete the next one.\n"
    'raise NotImplementedError("not answered yet")'
}
c.ClearSolutions.text_stub = "*Your answer here: replace this line.*"

# A cell gets two minutes (thirty seconds surprise people on a busy machine); then it is interrupted, loses its
# own points, and the next cell runs.
c.ExecutePreprocessor.timeout = 120
c.ExecutePreprocessor.startup_timeout = 120
c.ExecutePreprocessor.interrupt_on_timeout = True
c.ExecutePreprocessor.extra_arguments = ["--log-level=40"]  # the kernel's warnings are about its sockets

# Nothing that a student wrote runs in a page of feedback or of the formgrader.
c.HTMLExporter.preprocessors = [Harmless, FormgraderPage]
c.HTMLExporter.exclude_anchor_links = True

# Feedback shows the student's own work and the visible tests.
c.GenerateFeedback.preprocessors = [GetGrades, StripHiddenTests, CSSHTMLHeaderPreprocessor]
