"""Archives as Moodle and Canvas name them: every notebook finds its student, and every other file its reason."""

from __future__ import annotations

import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from classroom.grading import __main__ as command
from classroom.grading import collect as collecting
from classroom.grading import course
from classroom.grading.collect import collect
from classroom.grading.course import GradingFailed

NAME = "09_parameters"

MOODLE = {  # file in the archive → the folder of its student
    "Lovelace Ada_1234567_assignsubmission_file_/09_parameters.ipynb": "Lovelace_Ada",
    "Hopper Grace_1234568_assignsubmission_file_09_parameters.ipynb": "Hopper_Grace",
    "Erdős Pál_1234569_assignsubmission_file/09_parameters.ipynb": "Erdős_Pál",
    "O'Neil J.R. Jr._1234570_assignsubmission_file_/sub folder/09_parameters.ipynb": "O_Neil_J.R._Jr",
    "Group 1-Möbius August_1234571_assignsubmission_file_/09_parameters.ipynb": "Group_1-Möbius_August",
    ".._1234572_assignsubmission_file_/09_parameters.ipynb": "1234572",
}
CANVAS = {
    "lovelaceada_12345_67890_09_parameters.ipynb": "lovelaceada_12345",
    "hoppergrace_LATE_12346_67891_09_parameters-1.ipynb": "hoppergrace_12346",
    "erdőspál_late_12347_67892_09_parameters (2).ipynb": "erdőspál_12347",
    "smith_jr_12348_67893_09_parameters-3.ipynb": "smith_jr_12348",
    "anon_aB3d5_67894_09_parameters.ipynb": "anon_aB3d5",
    "LATE_anon_7f2_67895_09_parameters.ipynb": "anon_7f2",
}


def archive(path: Path, files: dict[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return path


def collected(tmp_path: Path, files: dict, platform: str, **options):
    """The result for an archive of `files`, and what lies under submitted/: student → text."""
    submitted = tmp_path / "submitted"
    done = collect(NAME, archive(tmp_path / "all.zip", files), platform, submitted, **options)
    there = {path.parent.parent.name: path.read_text("utf-8") for path in submitted.glob(f"*/{NAME}/{NAME}.ipynb")}
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == sorted(
        [tmp_path / "all.zip", *(submitted / student / NAME / f"{NAME}.ipynb" for student in there)]
    )
    return done, there


@pytest.mark.parametrize(("platform", "names"), [("moodle", MOODLE), ("canvas", CANVAS)])
def test_every_notebook_finds_its_student(tmp_path, platform, names):
    done, there = collected(tmp_path, {name: name for name in names}, platform)
    assert there == {student: name for name, student in names.items()}
    assert set(done.placed) == set(there) and done.left_out == {}


def test_what_is_late_says_so(tmp_path):
    done, _ = collected(tmp_path, dict.fromkeys(CANVAS, "x"), "canvas")
    late = {student for student, word in done.placed.items() if word == "new, late"}
    assert late == {"hoppergrace_12346", "erdőspál_12347", "anon_7f2"}


def test_of_several_uploads_the_latest_is_taken_and_the_others_are_named(tmp_path):
    canvas = {"ada_1_90_09_parameters.ipynb": "second", "ada_1_89_09_parameters-7.ipynb": "first"}
    done, there = collected(tmp_path, canvas, "canvas")
    assert there == {"ada_1": "second"}
    assert done.left_out == {
        "ada_1_89_09_parameters-7.ipynb": "the same student's ada_1_90_09_parameters.ipynb is later"
    }


def test_of_several_files_in_moodle_the_highest_number_is_taken(tmp_path):
    start = "Ada_1_assignsubmission_file_/09_parameters"
    files = {f"{start} (1).ipynb": "second", f"{start} (10).ipynb": "last", f"{start}.ipynb": "first"}
    done, there = collected(tmp_path, files, "moodle")
    assert there == {"Ada": "last"} and len(done.left_out) == 2


def test_two_people_of_one_name_are_told_apart(tmp_path):
    names = ["Müller Anna_17", "müller anna_18", "Müller Anton_19"]
    files = {f"{name}_assignsubmission_file_/09_parameters.ipynb": name for name in names}
    _, there = collected(tmp_path, files, "moodle")
    assert there == {"Müller_Anna_17": names[0], "müller_anna_18": names[1], "Müller_Anton": names[2]}


@pytest.mark.parametrize(
    ("member", "why"),
    [
        ("../../Ada_1_assignsubmission_file_/09_parameters.ipynb", "leads out"),
        ("Ada_1_assignsubmission_file_/../../09_parameters.ipynb", "leads out"),
        ("/etc/Ada_1_assignsubmission_file_/09_parameters.ipynb", "leads out"),
        ("..\\Ada_1_assignsubmission_file_09_parameters.ipynb", "leads out"),
        ("C:\\Ada_1_assignsubmission_file_09_parameters.ipynb", "leads out"),
        ("notes.txt", "not named as Moodle"),
        ("ada_1_2_09_parameters.ipynb", "not named as Moodle"),
        ("Ada_1_assignsubmission_onlinetext_onlinetext.html", "not named as Moodle"),
        ("Ada_1_assignsubmission_file_/09_parameters.pdf", "is not called 09_parameters.ipynb"),
    ],
)
def test_what_cannot_be_placed_is_listed_with_the_reason(tmp_path, member, why):
    right = {"Grace_2_assignsubmission_file_/09_parameters.ipynb": "right"}
    done, there = collected(tmp_path, {member: "x", **right}, "moodle")
    assert there == {"Grace": "right"}
    assert [(path, reason) for path, reason in done.left_out.items() if why not in reason] == []
    assert list(done.left_out) == [member.replace("\\", "/")]


def whole(submitted: Path) -> dict[str, str]:
    """Every file below `submitted`, by its path there."""
    return {path.relative_to(submitted).as_posix(): path.read_text() for path in submitted.rglob("*") if path.is_file()}


def test_the_only_notebook_or_archive_of_a_student_is_taken_whatever_it_is_called(tmp_path):
    files = {
        "Ada_1_assignsubmission_file_/my homework.ipynb": "Ada's",
        "Ada_1_assignsubmission_file_/picture.png": "x",
        "Grace_2_assignsubmission_file_/../10 flops.ipynb.zip": "x",
        "Alan_3_assignsubmission_file_/09_parameters.ipynb.ZIP": "Alan's",
        "Emmy_4_assignsubmission_file_/09_parameters.ipynb": "right",
        "Emmy_4_assignsubmission_file_/other.ipynb": "x",
        "Kurt_5_assignsubmission_file_/one.ipynb": "x",
        "Kurt_5_assignsubmission_file_/two.ipynb": "x",
        "Rosa_6_assignsubmission_file_/report.pdf": "x",
    }
    done = collect(NAME, archive(tmp_path / "all.zip", files), "moodle", tmp_path / "submitted")
    assert done.placed == {
        "Ada": "new, from my homework.ipynb",
        "Alan": "new, from 09_parameters.ipynb.ZIP",
        "Emmy": "new",
    }
    there = {f"Ada/{NAME}/{NAME}.ipynb": "Ada's", f"Alan/{NAME}/{NAME}.zip": "Alan's"}
    assert whole(tmp_path / "submitted") == there | {f"Emmy/{NAME}/{NAME}.ipynb": "right"}
    assert {str(path.relative_to(tmp_path / "submitted")) for path in done.written.values()} == set(
        whole(tmp_path / "submitted")
    )
    assert done.without == ["Grace", "Kurt", "Rosa"]  # nobody is lost
    assert len(done.left_out) + len(done.placed) == len(files)


def test_an_archive_and_a_notebook_of_one_student_do_not_lie_side_by_side(tmp_path):
    def hand_in(name: str, **options):
        path = archive(tmp_path / "all.zip", {name: name})
        return collect(NAME, path, "canvas", tmp_path / "submitted", **options)

    hand_in("ada_1_2_09_parameters.ipynb")
    assert "--force" in hand_in("ada_1_3_mine.zip").left_out["ada_1_3_mine.zip"]
    done = hand_in("ada_1_3_mine.zip", force=True)
    assert done.placed == {"ada_1": "replaced, from ada_1_3_mine.zip"} and done.without == []
    assert whole(tmp_path / "submitted") == {f"ada_1/{NAME}/{NAME}.zip": "ada_1_3_mine.zip"}


def test_a_stray_file_of_canvas_is_listed(tmp_path):
    done, there = collected(tmp_path, {"ada_1_text.html": "x", "ada_1_2_essay.docx": "x"}, "canvas")
    assert there == {} and len(done.left_out) == 2


def test_what_a_mac_adds_is_no_submission(tmp_path):
    files = {"__MACOSX/._Ada_1_assignsubmission_file_09_parameters.ipynb": "x"}
    done, there = collected(tmp_path, files, "moodle")
    assert there == {} and done.left_out == {}


def test_a_link_and_a_bomb_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(collecting, "LARGEST", 1000)
    path = archive(tmp_path / "all.zip", {"ada_1_2_09_parameters.ipynb": "0" * 1001})
    with zipfile.ZipFile(path, "a") as opened:
        link = zipfile.ZipInfo("grace_2_3_09_parameters.ipynb")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        opened.writestr(link, "/etc/hostname")
    done = collect(NAME, path, "canvas", tmp_path / "submitted")
    assert done.placed == {} and not (tmp_path / "submitted").exists()
    assert ["larger" in why or "link" in why for why in done.left_out.values()] == [True, True]


def test_a_file_larger_than_the_archive_says_or_damaged_costs_only_itself(tmp_path):
    names = ["ada_1_2_09_parameters.ipynb", "grace_2_3_09_parameters.ipynb"]
    path = tmp_path / "all.zip"
    with zipfile.ZipFile(path, "w") as opened:
        for name in names:
            opened.writestr(name, f"text of {name}")
    path.write_bytes(path.read_bytes().replace(b"text of ada", b"TEXT of ada"))
    done = collect(NAME, path, "canvas", tmp_path / "submitted")
    assert done.placed == {"grace_2": "new"}
    assert "cannot be unpacked" in done.left_out[names[0]] and done.without == ["ada_1"]


def test_names_in_utf_8_that_do_not_say_so_are_read(tmp_path):
    path = archive(tmp_path / "all.zip", {"Müller_1_assignsubmission_file_/09_parameters.ipynb": "x"})
    data = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + flags + 1] &= ~0x08  # the bit that says UTF-8
    path.write_bytes(data)
    with zipfile.ZipFile(path) as opened:
        assert "Müller" not in opened.namelist()[0]
    assert collect(NAME, path, "moodle", tmp_path / "submitted").placed == {"Müller": "new"}


def test_a_submission_is_replaced_only_by_force(tmp_path):
    name = "ada_1_%d_09_parameters.ipynb"
    assert collected(tmp_path, {name % 2: "first"}, "canvas")[0].placed == {"ada_1": "new"}
    assert collected(tmp_path, {name % 2: "first"}, "canvas")[0].placed == {"ada_1": "unchanged"}
    done, there = collected(tmp_path, {name % 3: "second"}, "canvas")
    assert done.placed == {} and "--force" in done.left_out[name % 3] and there == {"ada_1": "first"}
    done, there = collected(tmp_path, {name % 3: "second"}, "canvas", force=True)
    assert done.placed == {"ada_1": "replaced"} and there == {"ada_1": "second"}


FIRST, SECOND = "ada_1_2_09_parameters.ipynb", "ada_1_3_09_parameters.ipynb"
TIME = "2026-11-01 12:00:00 UTC"


def handed_in_before(tmp_path: Path) -> dict[str, str]:
    """A first submission that nbgrader's exchange gave a time; every file below submitted/."""
    collect(NAME, archive(tmp_path / "all.zip", {FIRST: "first"}), "canvas", tmp_path / "submitted")
    (tmp_path / "submitted" / "ada_1" / NAME / "timestamp.txt").write_text(TIME)
    there = whole(tmp_path / "submitted")
    assert there == {f"ada_1/{NAME}/{NAME}.ipynb": "first", f"ada_1/{NAME}/timestamp.txt": TIME}
    return there


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from classroom.grading.collect import collect
from classroom.grading.course import GradingFailed

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # so that it is an error, as on a full disk
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    collect(sys.argv[1], Path(sys.argv[2]), "canvas", Path(sys.argv[3]), force=True)
except GradingFailed as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing there bounds the size of a file")
def test_a_submission_survives_a_disk_that_is_full(tmp_path):
    before = handed_in_before(tmp_path)
    path = archive(tmp_path / "all.zip", {SECOND: "second" * 10_000})
    command = [sys.executable, "-c", FULL_DISK, NAME, str(path), str(tmp_path / "submitted")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "09_parameters.ipynb cannot be written: " in said
    assert whole(tmp_path / "submitted") == before


def test_a_submission_is_never_there_by_half(tmp_path, monkeypatch):
    """Whoever reads at the last moment before the new file is in its place reads the whole of the old one."""
    handed_in_before(tmp_path)
    place, seen = tmp_path / "submitted" / "ada_1" / NAME / f"{NAME}.ipynb", []

    def fails(beside, target) -> None:
        seen.append((Path(target), Path(beside).parent, place.read_text(), Path(beside).read_text()))
        raise OSError("no")

    path = archive(tmp_path / "all.zip", {SECOND: "second"})
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", fails)
        with pytest.raises(GradingFailed, match="cannot be written: no"):
            collect(NAME, path, "canvas", tmp_path / "submitted", force=True)
    assert seen == [(place, place.parent, "first", "second")]
    assert [(path.name, path.read_text()) for path in place.parent.glob("*.ipynb*")] == [(place.name, "first")]
    assert not list(place.parent.glob(".*"))


@pytest.mark.parametrize("name", [SECOND, "ada_1_3_mine.zip"])
def test_the_time_of_a_submission_goes_with_it(tmp_path, name):
    before = handed_in_before(tmp_path)
    path, submitted = archive(tmp_path / "all.zip", {name: "second"}), tmp_path / "submitted"
    collect(NAME, path, "canvas", submitted)
    assert whole(submitted) == before  # without --force nothing happens
    done = collect(NAME, path, "canvas", submitted, force=True)
    assert whole(submitted) == {f"ada_1/{NAME}/{NAME}{Path(name).suffix}": "second"}
    assert done.placed["ada_1"].startswith("replaced, the old time removed")


def test_the_time_of_a_submission_that_stays_stays(tmp_path):
    before = handed_in_before(tmp_path)
    done = collect(NAME, tmp_path / "all.zip", "canvas", tmp_path / "submitted", force=True)
    assert done.placed == {"ada_1": "unchanged"} and whole(tmp_path / "submitted") == before


@pytest.fixture
def submitted(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(course, "submitted", lambda _: tmp_path / "submitted")
    return tmp_path / "submitted"


def test_the_command_says_where_each_went_and_what_was_left_out(tmp_path, submitted, capsys):
    path = archive(tmp_path / "all.zip", {"ada_LATE_1_2_09_parameters.ipynb": "x", "notes.txt": "y"})
    assert command.main(["collect", NAME, "--from", "canvas", "--zip", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"new, late  {submitted / 'ada_1' / NAME / NAME}.ipynb" in said
    assert "notes.txt: not named as Canvas" in said
    assert said.endswith("Notebooks collected: 1. Files left out: 1.\n")


def test_the_command_fails_if_nothing_was_placed(tmp_path, submitted, capsys):
    path = archive(tmp_path / "all.zip", {"ada_1_2_09_parameters.ipynb": "x"})
    assert command.main(["collect", NAME, "--from", "moodle", "--zip", str(path)]) == 1
    assert "Is it a download of Moodle for 09_parameters?" in capsys.readouterr().err


def test_no_archive_and_no_assignment_are_told(tmp_path, submitted):
    (tmp_path / "all.zip").write_text("no archive")
    for name, why in (("all.zip", "cannot be read as a zip archive"), ("missing.zip", "there is no file")):
        with pytest.raises(GradingFailed, match=why):
            collect(NAME, tmp_path / name, "canvas", submitted)
    assert command.main(["collect", "09_paramters", "--from", "canvas", "--zip", "x.zip"]) == 1


def test_a_folder_that_cannot_be_written_is_not_the_archive_s_fault(tmp_path):
    (tmp_path / "submitted").write_text("a file where the folder should be")
    path = archive(tmp_path / "all.zip", {"ada_1_2_09_parameters.ipynb": "x"})
    with pytest.raises(GradingFailed, match=r"ada_1.* cannot be written: "):
        collect(NAME, path, "canvas", tmp_path / "submitted")
