"""The house rules of CONTRIBUTING.md: names, places, imports, sizes, and what may not stand in a file."""

import ast
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
# Chapters that look back on the others and bring no module of their own, and the exercise that belongs to no chapter.
WITHOUT_MODULE = {"since_2017", "limits", "bug_hunt"}
FORBIDDEN = {"utils", "common", "helpers", "misc"}


def tracked() -> list[PurePosixPath]:
    """Files that are in git or would be after ``git add``; a deleted one is not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return sorted(PurePosixPath(name) for name in set(listed.split("\0")) - {""} if (ROOT / name).is_file())


if not (ROOT / ".git").exists():
    pytest.skip("the house rules ask git which files belong to the course: use a clone", allow_module_level=True)
FILES = tracked()
NOTEBOOKS = [file for file in FILES if file.suffix == ".ipynb"]
MODULES = [file for file in FILES if file.suffix == ".py" and file.parts[0] == "lib"]
LIBRARY = [file for file in MODULES if file.parts[:2] == ("lib", "plainformer")]


def read(file: PurePosixPath | str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def files(pattern: str) -> list[PurePosixPath]:
    return [file for file in FILES if file.match(pattern) and len(file.parts) == pattern.count("/") + 1]


def code_of(file: PurePosixPath) -> ast.Module:
    """The syntax tree of a module, or of a notebook's code cells without IPython's own lines."""
    if file.suffix == ".py":
        return ast.parse(read(file), str(file))
    cells = [cell for cell in json.loads(read(file))["cells"] if cell["cell_type"] == "code"]
    sources = ["".join(cell["source"]) for cell in cells]
    sources = [source for source in sources if not source.startswith("%%")]
    lines = "\n".join(sources).split("\n")
    return ast.parse("\n".join(line for line in lines if not line.lstrip().startswith(("%", "!"))), str(file))


def imported(tree: ast.Module) -> set[str]:
    """First words of everything a file imports, inside functions too."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


def path_id(file: PurePosixPath) -> str:
    return str(file)


# --- the README's tree -----------------------------------------------------------------------------------------------


def tree() -> str:
    blocks = re.findall(r"^(```+)[^\n]*\n(.*?)^\1", read("README.md"), re.DOTALL | re.MULTILINE)
    return next((block for _, block in blocks if "lib/" in block), "")


def is_named(name: str, words: set[str]) -> bool:
    return any(word.rstrip("/") == name or word.startswith(f"{name}/") for word in words)


def names_of_the_tree() -> set[str]:
    return set(re.split(r"[\s,·│├└─]+", tree()))


def test_the_readme_draws_a_tree():
    assert tree(), "README.md needs a fenced block with the tree of the repository, lib/ among it"


def test_the_tree_names_every_entry_of_the_top_folder():
    assert not {file.parts[0] for file in FILES if not is_named(file.parts[0], names_of_the_tree())}


@pytest.mark.parametrize("top", ["lib", "tests"])
def test_the_tree_names_every_folder_below(top):
    folders = {parent for file in FILES for parent in file.parents if parent.parts[:1] == (top,)}
    assert not {str(folder) for folder in folders if not is_named(folder.name, names_of_the_tree())}


def test_the_tree_names_every_module():
    modules = [*files("lib/plainformer/*.py"), *files("lib/classroom/*.py")]
    assert not {str(m) for m in modules if m.stem != "__init__" and not is_named(m.name, names_of_the_tree())}


def test_the_tree_names_nothing_that_is_not_there():
    there = {file.name for file in FILES}
    assert not {word for word in names_of_the_tree() if re.fullmatch(r"\w+\.(py|toml|lock|md|yml)", word)} - there


# --- one stem, five places -------------------------------------------------------------------------------------------


def stems(pattern: str) -> dict[str, str]:
    """NN_stem -> stem, for the notebooks of one place."""
    found = {}
    for file in files(pattern):
        assert re.fullmatch(r"\d\d_[a-z0-9_]+", file.stem), f"{file} is not called NN_stem.ipynb"
        found[file.stem] = file.stem[3:]
    return found


CHAPTERS, SOLUTIONS, EXERCISES = map(stems, ["chapters/*.ipynb", "solutions/*/*.ipynb", "exercises/*/*.ipynb"])


@pytest.mark.parametrize("name", sorted(CHAPTERS | SOLUTIONS | EXERCISES))
def test_a_stem_stands_in_all_its_places(name):
    stem = name[3:]
    if stem not in WITHOUT_MODULE:
        assert (ROOT / "lib" / "plainformer" / f"{stem}.py").is_file()
        assert (ROOT / "tests" / "lib" / f"test_{stem}.py").is_file()
    assert (name in SOLUTIONS) == (name in EXERCISES), "run make exercises"
    assert sum(other[3:] == stem for other in CHAPTERS | SOLUTIONS | EXERCISES) == 1, "one stem, two numbers"


@pytest.mark.parametrize("place", ["solutions", "exercises"])
def test_an_assignment_s_folder_has_its_notebook_s_name(place):
    for file in files(f"{place}/*/*.ipynb"):
        assert file.parent.name == file.stem
    for folder in {file.parts[1] for file in FILES if file.parts[0] == place and len(file.parts) > 2}:
        assert (ROOT / place / folder / f"{folder}.ipynb").is_file()


def test_numbers_are_not_given_twice():
    for names in (CHAPTERS, SOLUTIONS, EXERCISES):
        assert len({name[:2] for name in names}) == len(names)


@pytest.mark.parametrize("module", [m for m in files("lib/plainformer/*.py") if m.stem != "__init__"], ids=path_id)
def test_every_module_of_the_library_has_its_test(module):
    assert (ROOT / "tests" / "lib" / f"test_{module.stem.strip('_')}.py").is_file()


def test_every_test_of_the_library_has_its_module():
    of_the_whole = {"test_doctests", "test_mutations"}  # examples, and planted faults, in any module
    tests = {file.stem for file in files("tests/lib/test_*.py")} - of_the_whole
    assert tests <= {f"test_{m.stem.strip('_')}" for m in LIBRARY}


# --- names -----------------------------------------------------------------------------------------------------------


def test_no_file_is_called_by_a_name_that_says_nothing():
    assert not [str(file) for file in FILES if {part.partition(".")[0].lower() for part in file.parts} & FORBIDDEN]


# --- imports run one way ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", LIBRARY, ids=path_id)
def test_the_library_does_not_import_the_classroom(file):
    assert not imported(code_of(file)) & {"classroom", "tests"}


@pytest.mark.parametrize("file", [m for m in MODULES if m not in LIBRARY] + NOTEBOOKS, ids=path_id)
def test_nothing_imports_the_tests(file):
    assert not imported(code_of(file)) & {"tests", "conftest"}


def public_names() -> set[str]:
    definitions = (ast.FunctionDef, ast.ClassDef)
    nodes = [node for file in LIBRARY for node in code_of(file).body if isinstance(node, definitions)]
    return {node.name for node in nodes if not node.name.startswith("_")}


@pytest.mark.parametrize("file", [file for file in NOTEBOOKS if file.parts[0] == "chapters"], ids=path_id)
def test_no_chapter_redefines_a_name_of_the_library(file):
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [*ast.walk(code_of(file))]
    methods = {id(member) for node in nodes if isinstance(node, ast.ClassDef) for member in node.body}
    defined = {node.name for node in nodes if isinstance(node, definitions) and id(node) not in methods}
    assert not defined & public_names(), "import it, or spell the toy differently and give it another name"


# --- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", LIBRARY, ids=path_id)
def test_a_module_and_its_functions_fit_a_reader_s_head(file):
    assert len(read(file).splitlines()) <= 300
    for node in ast.walk(code_of(file)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno + 1 <= 60, f"{node.name} is longer than a screen"


# --- notebooks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", NOTEBOOKS, ids=path_id)
def test_a_notebook_is_in_its_one_form(file):
    text = read(file)
    notebook = json.loads(text)
    assert text == json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "run make chapters"
    cells = notebook["cells"]
    assert [cell["id"] for cell in cells] == [f"{file.stem}-{n:02d}" for n in range(len(cells))]

    code = [cell for cell in cells if cell["cell_type"] == "code"]
    if file.parts[0] == "exercises":
        assert all(cell["execution_count"] is None and not cell["outputs"] for cell in code)
    else:
        full = [cell for cell in code if "".join(cell["source"]).strip()]
        assert [cell["execution_count"] for cell in full] == list(range(1, len(full) + 1)), "run make chapters"
    for cell in code:
        assert "execution" not in cell["metadata"] and "ExecuteTime" not in cell["metadata"]
        for output in cell["outputs"]:
            assert output["output_type"] != "error", f"{cell['id']} failed"
            assert output.get("execution_count") in (None, cell["execution_count"])
    assert "widgets" not in notebook["metadata"]


# --- nothing of a machine --------------------------------------------------------------------------------------------

BINARY = {".png", ".woff2", ".woff", ".ico", ".gif", ".jpg", ".pdf", ".gguf", ".safetensors"}
OF_A_MACHINE = {
    "a path of one machine": re.compile(r"(?<![\w.~*\-])/(?:work|root|home|Users)/|[A-Z]:\\\\?Users\\"),
    "a local version": re.compile(r"==\s*[\w.]+\+(?:cpu|cu\d+)\b"),
    "an index": re.compile(r"--(?:extra-)?index[-]url|--find[-]links|--trusted[-]host"),
}


@pytest.mark.parametrize("what", OF_A_MACHINE)
def test_no_file_holds(what):
    found = []
    for file in FILES:
        if file.suffix in BINARY or file.name == ".gitignore":  # there a leading slash means the top folder
            continue
        found += [f"{file}: {match.group()}" for match in OF_A_MACHINE[what].finditer(read(file))]
    assert not found


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("a path of one machine", "see /" "home/someone/x and file:///" "work/main"),
        ("a path of one machine", "C:\\" "Users\\someone"),
        ("a local version", "torch==2.13.0" "+cpu"),
        ("an index", "pip install --index" "-url x"),
    ],
)  # fmt: skip
def test_the_search_finds(what, text):
    assert OF_A_MACHINE[what].search(text)


@pytest.mark.parametrize(
    "text",
    ["https://example.org/home/a", "in work/09", "~/" "work/x", "exercises/work/"],
)  # fmt: skip
def test_the_search_leaves_alone(text):
    assert not OF_A_MACHINE["a path of one machine"].search(text)


# --- packaging and commands ------------------------------------------------------------------------------------------


def locked() -> dict[str, str]:
    lines = [line for line in read("requirements.lock").splitlines() if line and not line.startswith("#")]
    for line in lines:
        # a package without a wheel for some machines names those that get it
        assert re.fullmatch(r"[A-Za-z0-9][\w.-]*==[0-9][\w.!]*( ; .+)?", line), f"{line!r} is not NAME==VERSION"
    pins = [line.partition(" ; ")[0].split("==") for line in lines]
    assert len({canonicalize_name(name) for name, _ in pins}) == len(pins)
    return {canonicalize_name(name): version for name, version in pins}


def test_the_lock_file_pins_every_dependency():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    extras = {name: group for name, group in project["optional-dependencies"].items() if name != "weights"}
    pins = locked()
    for line in [*project["dependencies"], *(line for group in extras.values() for line in group)]:
        wanted = Requirement(line)
        assert canonicalize_name(wanted.name) in pins, f"{wanted.name} is not in requirements.lock"
        assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)], prereleases=True)


def test_the_library_needs_torch_alone():
    assert [Requirement(line).name for line in tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]] == [
        "torch"
    ]


@pytest.mark.parametrize("target", ["book", "lab", "test", "chapters", "exercises", "grade", "bench"])
def test_make_has_the_target(target):
    makefile = read("Makefile")
    assert re.search(rf"^{target}:.*##", makefile, re.MULTILINE), "a target, and a word about it for make help"
    assert re.search(rf"^\.PHONY:.*\b{target}\b", makefile, re.MULTILINE)


def test_continuous_integration_runs_the_readme_s_command():
    run = ROOT / ".ci" / "run"
    assert run.is_file() and os.access(run, os.X_OK)
    assert re.search(r"^[^#\n]*\bmake test\b", run.read_text(encoding="utf-8"), re.MULTILINE)
    assert "make test" in read("README.md")


def test_binder_installs_what_make_does():
    script = ROOT / ".binder" / "postBuild"
    steps = re.findall(r"^pip install --no-cache-dir (.+)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(steps) == 2 and not [step for step in steps if f"pip install --quiet {step}\n" not in read("Makefile")]
    assert os.access(script, os.X_OK)
    least = tomllib.loads(read("pyproject.toml"))["project"]["requires-python"].removeprefix(">=")
    assert read(".binder/runtime.txt").strip() == f"python-{least}"


@pytest.mark.parametrize("name", ["LICENSE", "LICENSE-text", "CONTRIBUTING.md", "nbgrader_config.py", "index.md"])
def test_the_top_folder_has(name):
    assert PurePosixPath(name) in FILES and read(name).strip()
