"""The ledger of claims: well formed, true to itself, and checked chapter by chapter; and `claim` is strict."""

import json
import re
import subprocess
import sys
from collections import Counter
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from classroom import figures, ledger
from classroom.ledger import STEMS, Badge, ClaimError, Row, claim, claims, load, rows

CHAPTERS = Path(__file__).parents[2] / "chapters"
ROWS = load(CHAPTERS / "claims.csv")
NUMERIC = [row for row in ROWS if row.numeric]
HEADER = "id,source,section,claim,stated,rule,computed,verdict,chapter,note\n"
STATEMENTS = [row for row in ROWS if not row.numeric and row.rule != "unchecked"]


def ids(wanted) -> list[str]:
    return [row.id for row in wanted]


# ---- the file ----


def test_every_id_names_its_source():
    assert not [row.id for row in ROWS if row.id[:4] != f"{row.source}-"]
    assert {row.source for row in ROWS} == {"000", "001", "003", "004"}


def test_rules_are_well_formed():
    number = r"\d+(\.\d+)?"
    rule = re.compile(rf"exact|rounded|within {number}%?|holds|wrong(?: within {number}%?)?|unchecked")
    assert not [(row.id, row.rule) for row in ROWS if not rule.fullmatch(row.rule)]
    assert not ids(row for row in ROWS if row.rule.startswith("within ") and row.tolerance()[0] <= 0)


def test_every_row_says_what_it_must():
    assert not ids(row for row in ROWS if not (row.section and row.claim and row.verdict))
    assert not ids(row for row in ROWS if row.rule != "unchecked" and not row.computed)
    assert not ids(row for row in ROWS if row.rule == "unchecked" and (row.chapter or not row.note))
    assert not ids(row for row in ROWS if row.rule != "unchecked" and row.chapter not in STEMS)


def test_a_verdict_against_the_source_has_a_rule_that_says_so_or_a_note():
    against = [row for row in ROWS if row.verdict in ("wrong", "inconsistent-with-another-claim")]
    assert not ids(row for row in against if not row.corrected and not row.note)


def test_no_row_mentions_how_it_was_prepared():
    inside = re.compile(r"exp_\w+\(|check:|text\('|--slow|\bpilot\b", re.IGNORECASE)
    assert not ids(row for row in ROWS if inside.search(" ".join((row.claim, row.stated, row.computed, row.note))))


def test_our_own_figure_satisfies_the_rule_and_contradicts_a_wrong_source():
    failing = []
    for row in NUMERIC:
        ours = tuple(figure.value for figure in figures.parse(row.computed))
        if not row.accepts(ours):
            failing.append(row.id)
        stated = row.stated_figures()
        if row.corrected and stated and figures.prints_as(ours, stated):
            failing.append(f"{row.id}: what the source states is right")
    assert not failing


def test_rows_with_words_as_the_stated_value_are_few():
    """Where the source prints no figure a number is compared with ours alone; that must stay the exception."""
    bare = [row for row in NUMERIC if not row.corrected and row.stated_figures() is None]
    assert len(bare) < len(NUMERIC) / 10, ids(bare)


# ---- where each row is checked ----


def misplaced(entries: tuple[Row, ...], notebooks: dict[str, list[str]]) -> dict[str, list[str]]:
    """What is wrong with the calls: {problem: ids}, given the ids that each notebook claims."""
    known = {row.id: row for row in entries}
    problems = {name: [] for name in ("unknown", "elsewhere", "twice", "missing", "not checkable")}
    for stem, called in notebooks.items():
        for name, times in Counter(called).items():
            row = known.get(name)
            if row is None:
                problems["unknown"].append(f"{name} in {stem}")
            elif row.rule == "unchecked":
                problems["not checkable"].append(f"{name} in {stem}")
            elif row.chapter != stem:
                problems["elsewhere"].append(f"{name} in {stem}, expected in {row.chapter}")
            elif times > 1:
                problems["twice"].append(f"{name} in {stem}")
    for row in entries:
        if row.rule != "unchecked" and row.id not in notebooks.get(row.chapter, ()):
            problems["missing"].append(f"{row.id} in {row.chapter}")
    return {name: found for name, found in problems.items() if found}


def test_every_row_is_checked_in_its_chapter_exactly_once_or_cannot_be_checked():
    found = [path for path in CHAPTERS.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts]
    assert misplaced(ROWS, {path.stem: ledger.called(path) for path in found}) == {}


def test_misplaced_calls_are_found():
    def row(name, chapter, rule="holds"):
        words = dict.fromkeys(("source", "section", "claim", "stated", "computed", "verdict", "note"), "-")
        return Row(id=name, rule=rule, chapter=chapter, **words)

    entries = (row("a", "01_tokens"), row("b", "01_tokens"), row("d", "", "unchecked"))
    assert misplaced(entries, {"01_tokens": ["a", "b"]}) == {}  # d cannot be checked
    waiting = (*entries, row("c", "15_limits"))
    assert misplaced(waiting, {"01_tokens": ["a", "b"]}) == {"missing": ["c in 15_limits"]}  # no row waits
    assert misplaced(entries, {"01_tokens": ["a"]}) == {"missing": ["b in 01_tokens"]}
    assert misplaced(entries, {"01_tokens": ["a", "b", "b"]}) == {"twice": ["b in 01_tokens"]}
    assert misplaced(entries, {"01_tokens": ["a", "b", "x"]}) == {"unknown": ["x in 01_tokens"]}
    assert misplaced(entries, {"01_tokens": ["a", "b", "d"]}) == {"not checkable": ["d in 01_tokens"]}
    found = misplaced(entries, {"01_tokens": ["a", "b"], "appendix": ["a"]})
    assert found == {"elsewhere": ["a in appendix, expected in 01_tokens"]}


def notebook(path: Path, *sources: str) -> Path:
    cells = [{"cell_type": "code", "source": source.splitlines(keepends=True)} for source in sources]
    cells.append({"cell_type": "markdown", "source": ['claim("in-prose", 1)']})
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    return path


def test_calls_are_found_in_code_cells_alone(tmp_path):
    path = notebook(
        tmp_path / "n.ipynb",
        '%matplotlib inline\nclaim("a", 1)\n# claim("comment", 1)',
        'if True:\n    ledger.claims({"b": x, "c": f(2)})\nother("d", 1)',
    )
    assert sorted(ledger.called(path)) == ["a", "b", "c"]


@pytest.mark.parametrize("call", ["claim(name, 1)", "claims(checked)", 'claims({**more, "a": 1})', "claim(id='a')"])
def test_an_id_that_is_not_written_out_is_refused(tmp_path, call):
    with pytest.raises(ValueError, match="written out"):
        ledger.called(notebook(tmp_path / "n.ipynb", call))


# ---- printed figures ----


SCALES = {"": 1, "x": 1, "k": 10**3, " thousand": 10**3, " M": 10**6, " million": 10**6, " B": 10**9}
SCALES |= {" T": 10**12, "%": Fraction(1, 100), " KiB": 1024, " GiB": 1024**3, " MB": 10**6, " GFLOPs": 10**9}
digits = st.integers(min_value=-(10**12), max_value=10**12)


@given(digits, st.integers(0, 6), st.sampled_from(sorted(SCALES)), st.booleans(), st.sampled_from(["", "about ", "~"]))
def test_a_printed_figure_is_read_back(whole, decimals, scale, separated, about):
    text = f"{Decimal(whole).scaleb(-decimals):{',' if separated else ''}f}"
    plus = "+" if whole > 0 and not separated else ""
    (figure,) = figures.parse(about + plus + text + scale)
    assert figure.value == Fraction(whole, 10**decimals) * SCALES[scale]
    assert figure.step == Fraction(1, 10**decimals) * SCALES[scale]


@given(st.integers(1, 9999), st.integers(0, 3), st.integers(-20, 40), st.sampled_from(["e", "e+"]))
def test_e_notation_is_read_back(whole, decimals, exponent, sign):
    sign = "e" if exponent < 0 else sign
    (figure,) = figures.parse(f"{Decimal(whole).scaleb(-decimals):f}{sign}{exponent}")
    assert figure.step == Fraction(10) ** (exponent - decimals)
    assert figure.value == whole * figure.step


@given(st.lists(st.integers(-(10**9), 10**9), min_size=2, max_size=8), st.sampled_from([", ", " / ", " x ", " × "]))
def test_several_figures_are_read_back(numbers, separator):
    text = separator.join(f"{number:,}" for number in numbers)
    for form in (text, f"({text})"):
        assert [figure.value for figure in figures.parse(form)] == numbers


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("10-25%", (Fraction(1, 10), Fraction(1, 4))),
        ("100-130", (100, 130)),
        ("−6", (-6,)),
        ("2, 1/2", (2, Fraction(1, 2))),
        ("two thirds", (Fraction(2, 3),)),
        ("~32k", (32000,)),
        ("10-25%, 32k", (Fraction(1, 10), Fraction(1, 4), 32000)),
    ],
)
def test_other_forms(text, values):
    assert tuple(figure.value for figure in figures.parse(text)) == values


@pytest.mark.parametrize(
    "text", ["", "d", "4d^2", "T(T+1)/2", "8 apples", "1,23", "5 of 7", "none", "12,3456", "-", "1.", "nan"]
)
def test_what_is_no_figure_is_refused(text):
    assert not figures.is_printed(text)
    with pytest.raises(ValueError, match="not a printed figure"):
        figures.parse(text)


@given(st.floats(-1e6, 1e6), st.integers(0, 5))
def test_a_float_prints_as_its_own_rounding_and_as_nothing_else(value, decimals):
    text = f"{value:,.{decimals}f}"  # Python's rounding is the independent implementation
    (figure,) = figures.parse(text)
    assert figures.prints_as((value,), (figure,))
    for wrong in (figure.value - figure.step, figure.value + figure.step):
        assume(abs(abs(Fraction(value) - figure.value) - figure.step / 2) > 0)  # a tie prints as either
        assert not figures.prints_as((value,), (figures.Figure(wrong, figure.step),))


@given(st.integers(1, 10**13), st.integers(0, 3), st.sampled_from([(3, "k"), (6, " million"), (9, " B")]))
def test_a_count_prints_as_its_own_rounding(count, decimals, scale):
    power, unit = scale
    short = Decimal(count).scaleb(-power).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_EVEN)
    assert figures.prints_as((count,), figures.parse(f"{short:,f}{unit}"))
    step = Fraction(10) ** (power - decimals)
    assert not figures.prints_as((count + 2 * step,), figures.parse(f"{short:,f}{unit}"))


@given(st.floats(-1e9, 1e9), st.integers(-6, 3))
def test_shown_values_are_near_and_have_no_negative_zero(value, power):
    step = Fraction(10) ** power
    text = figures.show(value, step)
    assert abs(Fraction(text.replace(",", "")) - Fraction(value)) <= step / 2
    assert not re.fullmatch(r"-[0.,]+", text)


def test_shown_values_read_back():
    assert figures.show(6738415616) == "6,738,415,616"
    assert figures.show(Fraction(1, 3)) == "1/3"
    assert figures.show(0.25, unit="%") == "25%"
    assert figures.show(8.0) == "8"


# ---- claim() ----


def accepted(row: Row) -> tuple:
    """A value that the row must accept: ours where the source is wrong, what is stated elsewhere."""
    return tuple(figure.value for figure in row.target())


def passes(row: Row, value) -> bool:
    try:
        claim(row.id, value)
    except ClaimError:
        return False
    return True


def test_the_right_value_passes():
    # a scalar must pass bare, a tuple as a tuple, nested or not, and floats like fractions
    failing = []
    for row in NUMERIC:
        value = accepted(row)
        forms = [value, list(value), (value[:1], value[1:]), tuple(map(float, value))]
        forms += [value[0]] if len(value) == 1 else []
        failing += [row.id for form in forms if not passes(row, form)]
    assert not failing


def test_a_value_off_in_the_last_printed_digit_raises():
    failing = []
    for row in NUMERIC:
        value, target = accepted(row), row.target()
        for index, figure in enumerate(target):
            if "within " in row.rule:
                size, relative = row.tolerance()
                off = size * (abs(figure.value) if relative else 1) * Fraction(1001, 1000)
            else:
                off = figures.finest_step(target) or Fraction(1, 1000)
            for near_miss in (value[index] + off, value[index] - off):
                changed = (*value[:index], near_miss, *value[index + 1 :])
                failing += [(row.id, near_miss)] if passes(row, changed) else []
    assert not failing


def test_what_a_wrong_source_states_raises():
    wrong = [row for row in NUMERIC if row.corrected and row.stated_figures()]
    assert len(wrong) >= 10
    assert not ids(row for row in wrong if passes(row, tuple(f.value for f in row.stated_figures())))


def test_a_value_that_prints_as_the_wrong_source_too_raises(tmp_path):
    path = tmp_path / "claims.csv"
    path.write_text(HEADER + "a,000,s,c,7,wrong,6.5,wrong,01_tokens,\n", encoding="utf-8")
    assert claim("a", 6.47, path=path).verdict == "corrected"
    with pytest.raises(ClaimError):
        claim("a", 6.53, path=path)  # rounds to 6.5, but to 7 as well


def test_a_bare_integer_in_a_tuple_of_decimals_is_as_precise_as_they_are():
    figures_of = figures.parse("(0.860, 1.432, 0, 0.572)")
    assert figures.prints_as((0.86, 1.432, 0.0004, 0.572), figures_of)
    assert not figures.prints_as((0.86, 1.432, 0.4, 0.572), figures_of)


def test_a_tuple_of_another_length_raises():
    assert not ids(row for row in NUMERIC if passes(row, (*accepted(row), 0)) or passes(row, ()))


def test_statements_take_true_and_nothing_else():
    assert not ids(row for row in STATEMENTS if not passes(row, True))
    bad = (False, 1, 1.0, "True", None, (), (True, True))
    assert not [(row.id, value) for row in STATEMENTS for value in bad if passes(row, value)]


@pytest.mark.parametrize("value", [True, False, float("nan"), float("inf"), "8", None, 1j, [True], {}])
def test_figures_take_finite_numbers_and_nothing_else(value):
    assert not ids(row for row in NUMERIC if passes(row, value))


def test_tensors_and_arrays_of_no_dimension_are_numbers():
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")
    assert passes(rows_by_id("000-scale-04"), torch.tensor(64.0).sqrt())
    assert passes(rows_by_id("000-tokens-02"), torch.empty(32000, 4096, device="meta").shape)
    assert passes(rows_by_id("000-scale-04"), numpy.sqrt(numpy.int64(64)))
    assert passes(rows_by_id("000-attn-03"), torch.tensor(True))
    assert not passes(rows_by_id("000-scale-04"), torch.tensor([8.0]))
    assert not passes(rows_by_id("000-scale-04"), torch.tensor(True))


def rows_by_id(name: str) -> Row:
    return next(row for row in ROWS if row.id == name)


def test_an_unchecked_row_cannot_be_claimed():
    for row in ROWS:
        if row.rule == "unchecked":
            with pytest.raises(ClaimError, match=re.escape(row.note)):
                claim(row.id, True)


def test_an_unknown_id_names_its_neighbours():
    with pytest.raises(ClaimError, match="000-scale-07"):
        claim("000-scale-7", 1)


def test_a_disagreement_says_everything():
    row = rows_by_id("001-config-03")
    with pytest.raises(ClaimError) as error:
        claim(row.id, 1234.5)
    message = str(error.value)
    for part in (row.id, row.claim, row.stated, row.computed, "1234.5", row.rule, "Mend the code", "claims.csv"):
        assert part in message
    assert isinstance(error.value, AssertionError)


def test_several_claims_report_every_failure():
    with pytest.raises(ClaimError) as error:
        claims({"000-scale-04": 9, "000-scale-05": 8, "no-such-claim": 1})
    assert "000-scale-04" in str(error.value) and "no-such-claim" in str(error.value)
    assert "000-scale-05" not in str(error.value).split("Nearest")[0]
    with pytest.raises(ClaimError, match="no claim"):
        claims({})


# ---- what a page shows ----


class Outline(HTMLParser):
    """Tags with their attributes, and the text; a tag left open or closed twice is an error."""

    def __init__(self, text: str):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def right_value(row: Row):
    return accepted(row) if row.numeric else True


def test_every_badge_is_one_line_escaped_and_without_colours():
    for row in NUMERIC + STATEMENTS:
        badge = claim(row.id, right_value(row))
        page = Outline(badge._repr_html_())
        assert page.tags[0][1]["class"].startswith("pf-claim")
        assert [tag for tag, _ in page.tags] == ["p", "span", "code"]
        assert not [attributes for _, attributes in page.tags if "style" in attributes or "color" in attributes]
        assert row.claim in page.text and row.id in page.text
        assert "\n" not in repr(badge) and " object at 0x" not in repr(badge)
        assert ("the source says" in page.text) == (row.corrected)
        if row.corrected:
            assert row.stated in page.text and "here: " in page.text


def test_a_table_of_claims_is_accessible_and_complete():
    wanted = {row.id: right_value(row) for row in NUMERIC + STATEMENTS}
    shown = claims(wanted)
    page = Outline(shown._repr_html_())
    tags = [tag for tag, _ in page.tags]
    assert tags[:4] == ["details", "summary", "table", "caption"]
    scopes = Counter(attributes["scope"] for tag, attributes in page.tags if tag == "th")
    assert scopes == {"col": 4, "row": len(wanted)}
    assert tags.count("td") == 3 * len(wanted)
    assert all(name in page.text for name in wanted)
    corrected = sum(row.corrected for row in NUMERIC + STATEMENTS)
    assert shown.summary == f"{len(wanted)} claims of the source texts checked, {corrected} of them corrected"
    assert repr(shown) == repr(claims(wanted)) and len(repr(shown).splitlines()) == len(wanted) + 1
    assert claims({"000-scale-04": 8}).summary == "1 claim of the source texts checked"


def test_markup_in_the_ledger_is_escaped():
    words = dict.fromkeys(("source", "section", "verdict", "chapter", "note"), "")
    row = Row(id="x-1", claim="<b>a</b> & b", stated="<i>", rule="wrong", computed="<u>", **words)
    for page in (Badge(row, "<u>")._repr_html_(), ledger.Badges((Badge(row, "<u>"),))._repr_html_()):
        assert not {"b", "i", "u"} & {tag for tag, _ in Outline(page).tags}
        assert "<b>a</b> & b" in Outline(page).text


def test_noise_below_the_tolerance_is_not_shown():
    """Measured values differ between processors in their last digits; what a page stores must not."""
    assert repr(claim("004-norm-01", (6e-17, 1 - 2e-7))) == repr(claim("004-norm-01", (-5e-17, 1 + 1e-7)))
    assert repr(claim("000-scale-07", 8886110.5)) == repr(claim("000-scale-07", 8886110.49))


# ---- reading the file ----


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("id,claim\n", "columns"),
        (HEADER + "a,000,s,c,1,exact,1,exact,01_tokens,\n" * 2, "more than one line"),
        (HEADER + "a,000,s,c,1,exact,1\n", "cells"),
        (HEADER + "a,000,s,c,1,exact,1,exact,01_tokens,,extra\n", "cells"),
    ],
)
def test_a_damaged_ledger_is_refused(tmp_path, text, reason):
    path = tmp_path / "claims.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=reason):
        load(path)


def test_another_ledger_can_be_given(tmp_path):
    path = tmp_path / "claims.csv"
    path.write_text(HEADER + '"a",000,s,c,"6,738",exact,"6,738",exact,01_tokens,\n', encoding="utf-8")
    assert claim("a", 6738, path=path).given == "6,738"
    assert claims({"a": 6738}, path=path).summary.startswith("1 claim ")
    assert ids(rows("01_tokens", path=path)) == ["a"]
    assert rows("02_attention", path=path) == ()


def test_rows_of_a_chapter():
    assert sum(len(rows(stem)) for stem in STEMS) == sum(row.rule != "unchecked" for row in ROWS)
    with pytest.raises(ValueError, match="02_attention"):
        rows("02_attntion")


def test_without_a_repository_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(ledger, "__file__", str(tmp_path / "site-packages" / "classroom" / "ledger.py"))
    with pytest.raises(FileNotFoundError, match="pip install -e"):
        load()


def test_the_module_alone_needs_no_torch_and_prints_its_table():
    code = "import sys, classroom.ledger as l; l._main(); assert 'torch' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [line.split() for line in run.stdout.splitlines()]
    table = {words[0]: tuple(map(int, words[1:])) for words in lines if words[0] in STEMS}
    assert list(table) == list(STEMS)
    for stem, (wanted, checked, waiting) in table.items():
        assert wanted == len(rows(stem)) == checked + waiting
        assert checked == len(set(ledger.called(CHAPTERS / f"{stem}.ipynb"))) and waiting == 0
    assert lines[-1][-1] == str(sum(row.rule == "unchecked" for row in ROWS))
