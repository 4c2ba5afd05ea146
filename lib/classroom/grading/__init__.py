"""Release and grade exercises with nbgrader: `python -m classroom.grading release|collect|demo|trial|term`."""

import sys

# jsonschema would build a grammar of internationalised addresses when nbformat imports it, half of a worker's start; it
# can do without, and no notebook's schema asks for it
sys.modules.setdefault("rfc3987_syntax", None)
