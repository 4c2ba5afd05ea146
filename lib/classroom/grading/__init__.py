"""Release and grade exercises with nbgrader: `python -m classroom.grading release|collect|demo|trial|term`."""
