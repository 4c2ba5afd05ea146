"""Feedback: what a check says about an answer, right, wrong or missing."""

import math

import numpy as np
import pytest
import torch

from classroom.checks.expect import CheckFailed, call, hidden_test, in_any_order, number, same


def said(*arguments, **options) -> str:
    """The message of a comparison that must fail."""
    with pytest.raises(CheckFailed) as failure:
        same(*arguments, **options)
    return str(failure.value)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (3, 3),
        (np.int64(3), 3),
        (torch.tensor(3), 3),
        (True, True),
        ("a", "a"),
        (0.25, 0.25),
        (np.float32(0.25), 0.25),
        (0.2504, 0.25),
        (1, 1.0),
        (math.inf, math.inf),
        ({"a": 1, "b": [0.5, "x"]}, {"b": [0.5, "x"], "a": 1}),
        ((1, 2), [1, 2]),
        (torch.tensor([1.0, math.nan]), torch.tensor([1.0, math.nan])),
        (math.nan, math.nan),
        (torch.tensor(0.2504), torch.tensor(0.25)),
        (torch.tensor(3), torch.tensor(3)),
        (torch.tensor(math.nan), torch.tensor(math.nan)),
    ],
)
def test_equal_answers_pass(actual, expected):
    same(actual, expected, "answer", tolerance=5e-4)


class AlwaysEqual:
    def __eq__(self, other):
        return True

    __hash__ = None


class Lenient(float):
    def __eq__(self, other):
        return True

    def __sub__(self, other):
        return 0.0

    __hash__ = None


class LenientDict(dict):
    pass


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (True, 1),
        (1, True),
        (3.0, 3),
        ("3", 3),
        (True, 1.0),
        (math.nan, 0.5),
        (torch.tensor([3]), 3),
        (AlwaysEqual(), 3),
        (AlwaysEqual(), "a"),
        (AlwaysEqual(), 0.5),
        (AlwaysEqual(), {"a": 1}),
        (Lenient(7.0), 0.5),
        (LenientDict(a=1), {"a": 1}),
        ([1, 2], {"a": 1}),
        ([1], [1, 2]),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ([1.0, 2.0], torch.tensor([1.0, 2.0])),
        (torch.tensor([1, 2]), torch.tensor([1.0, 2.0])),
        (torch.tensor([[1.0, 2.0]]), torch.tensor([1.0, 2.0])),
        (torch.tensor([math.nan, 2.0]), torch.tensor([1.0, 2.0])),
        (0.5, math.nan),
        (0.25, torch.tensor(0.25)),
        (torch.tensor([0.25]), torch.tensor(0.25)),
        (torch.tensor(1), torch.tensor(1.0)),
        (torch.tensor(0.3), torch.tensor(0.25)),
        (torch.tensor(math.nan), torch.tensor(0.25)),
    ],
)
def test_unequal_answers_fail(actual, expected):
    with pytest.raises(CheckFailed):
        same(actual, expected, "answer", tolerance=1e-6)


def test_the_first_differing_entry_of_a_tensor_stands_beside_what_was_expected():
    expected = torch.zeros(2, 3, dtype=torch.float64)
    actual = expected.clone()
    actual[1, 0], actual[1, 2] = 4.0, 5.0
    message = said(actual, expected, "scores")
    assert "scores[1, 0] is the first of 2 wrong entries" in message
    assert "expected 0, got 4" in message


def test_the_first_differing_key_is_named():
    message = said({"a": 1, "b": 2}, {"a": 1, "b": 3}, "parts")
    assert "parts['b']" in message and "expected 3, got 2" in message
    assert "no key 'b'" in said({"a": 1}, {"a": 1, "b": 3}, "parts")
    assert "unknown key 'c'" in said({"a": 1, "c": 1}, {"a": 1}, "parts")


def test_a_known_wrong_answer_is_diagnosed():
    with pytest.raises(CheckFailed) as failure:
        same(7, 5, "answer", wrong={"two was added twice": 7, "one was taken": 4})
    assert failure.value.slip == "two was added twice"
    assert "two was added twice" in str(failure.value) and "expected 5, got 7" in str(failure.value)
    with pytest.raises(CheckFailed) as failure:
        same(8, 5, "answer", wrong={"two was added twice": 7})
    assert failure.value.slip is None


def test_an_answer_that_a_student_types_is_not_revealed():
    for answer, wrong in ((7, {"a slip": 7}), (8, {}), ("x", {})):
        expected = "secret" if answer == "x" else 12345
        assert str(expected) not in said(answer, expected, "answer", wrong=wrong, reveal=False).replace(",", "")
    assert "too small" in said(7, 12345, "answer", reveal=False)


def test_a_float_where_a_count_belongs_is_seen_to_be_one_and_told_what_to_do():
    message = said(27648.0, 27648, "count")
    assert "must be an int" in message and "//" in message
    assert "expected 27,648, got 27648.0" in message


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (math.nan, 0.5),
        (np.float64("nan"), 0.5),
        (torch.tensor(math.nan), torch.tensor(0.5)),
        (torch.tensor([0.5, math.nan]), torch.tensor([0.5, 0.5])),
        ({"a": [math.nan]}, {"a": [0.5]}),
    ],
)
def test_nan_is_called_no_number_and_told_its_usual_causes(answer, expected):
    message = said(answer, expected, "answer", tolerance=1e-6)
    assert "nan, which is no number" in message and "all −∞" in message
    assert "small" not in message and "large" not in message


@pytest.mark.parametrize("of", [float, torch.tensor, lambda x: [x], lambda x: torch.tensor([x])])
def test_a_slip_that_gives_nan_is_known(of):
    slips = {"another": of(0.7), "a hidden row": of(math.nan)}
    assert "a hidden row" in said(of(math.nan), of(0.5), "answer", wrong=slips, tolerance=1e-6)
    assert "a hidden row" not in said(of(0.6), of(0.5), "answer", wrong=slips, tolerance=1e-6)


def test_a_tensor_of_no_axis_is_compared_as_the_number_it_is():
    assert "loss is too large: you have 0.5" in said(torch.tensor(0.5), torch.tensor(0.25), "loss", tolerance=1e-6)
    assert "the mean" in said(torch.tensor(2.0), torch.tensor(0.25), "loss", wrong={"the mean": torch.tensor(2.0)})
    assert "a tensor was expected" in said(0.25, torch.tensor(0.25), "loss")


WORDS = ("below", "inside", "very-far")


@pytest.mark.parametrize("answer", ["Below", "BELOW ", "inside.", "Very far", "very_far", "above", "", 3, ["below"]])
def test_an_answer_that_is_none_of_the_words_is_told_the_words_and_not_whether_it_is_right(answer):
    message = said(answer, "below", "tier", wrong={"a slip": "inside"}, choices=WORDS, reveal=False)
    assert 'write one of "below", "inside", "very-far", exactly so' in message
    assert message.replace(repr(answer), "") == said(
        "x", "inside", "tier", wrong={}, choices=WORDS, reveal=False
    ).replace("'x'", "")


def test_one_of_the_words_is_judged():
    same("below", "below", "tier", choices=WORDS)
    assert said("inside", "below", "tier", choices=WORDS, reveal=False) == "tier is not 'inside'."


@pytest.mark.parametrize("rounded", [5.86, 5.85, 5.9, 5.8])
def test_a_right_answer_rounded_too_far_is_told_so(rounded):
    assert "three decimals or more" in said(rounded, 5.8553, "ratio", tolerance=6e-4, reveal=False)


@pytest.mark.parametrize("wrong", [5.84, 5.7, 6.1, 5.853, -5.86, 0.0])
def test_a_wrong_answer_is_not_called_rounded(wrong):
    assert "decimals" not in said(wrong, 5.8553, "ratio", tolerance=6e-4, reveal=False)
    assert "decimals" not in said(0.0, 0.0013, "ratio", tolerance=6e-4, reveal=False)


def test_a_slip_is_known_in_two_digits_and_not_where_it_makes_no_difference():
    assert "per cent" in said(6.7, 0.06746, "share", wrong={"per cent": 6.746}, tolerance=6e-4)
    assert "per cent" not in said(6.6, 0.06746, "share", wrong={"per cent": 6.746}, tolerance=6e-4)
    assert "no table" not in said(-0.32, -0.3173, "error", wrong={"no table": -0.3173}, tolerance=6e-4)


def test_a_number_is_taken_as_such_and_anything_else_is_asked_for_one():
    assert [number(x, "guess", "3e7") for x in (3, 2.5, np.float64(2.5), torch.tensor(3), 10**400)] == [
        3,
        2.5,
        2.5,
        3,
        10**400,
    ]
    for answer in ("700 million", "7e8", True, math.nan, math.inf, [3], {}):
        with pytest.raises(CheckFailed, match="give a number such as 3e7"):
            number(answer, "guess", "3e7")
    with pytest.raises(CheckFailed, match="not answered yet"):
        number(..., "guess", "3e7")


@pytest.mark.parametrize("missing", [None, ...])
def test_an_untouched_answer_is_called_so(missing):
    assert said(missing, 3, "total") == "total: not answered yet."
    assert "parts['a']: not answered yet" in said({"a": missing}, {"a": 3}, "parts")
    assert "parts[1]: not answered yet" in said([1, ...], [1, 2], "parts")


# ---- functions ----


def call_says(function, **arguments) -> str:
    with pytest.raises(CheckFailed) as failure:
        call(function, "f", **arguments)
    return str(failure.value)


def test_a_function_that_works_gives_its_result():
    assert call(lambda a, b: a + b, "f", a=1, b=2) == 3


def test_a_function_that_raises_shows_call_error_and_line():
    def f(a, b):
        c = a - b
        return a / c

    message = call_says(f, a=2, b=2)
    assert "f(a=2, b=2) raises ZeroDivisionError" in message
    assert "return a / c" in message


def test_a_function_without_return_is_asked_about_it():
    def f(a):
        a + 1

    assert "returns None" in call_says(f, a=1) and "return" in call_says(f, a=1)


def test_the_stub_of_a_release_is_not_answered_yet():
    def f(a):
        raise NotImplementedError("not answered yet")

    assert call_says(f, a=1) == "f: not answered yet."
    assert call_says(..., a=1) == "f: not answered yet."


def test_what_is_no_function_or_has_other_parameters_is_named():
    assert "not a function" in call_says(3, a=1)
    assert "keep its first line" in call_says(lambda b: b, a=1)


def test_leaving_the_kernel_is_a_failure_and_not_an_exit():
    def f(a):
        raise SystemExit(0)

    assert "SystemExit" in call_says(f, a=1)


def test_a_hidden_test_is_silent_and_tells_no_values(capsys):
    with hidden_test():
        print("✓ something")
    assert capsys.readouterr().out == ""
    for wrong in ({}, {"a slip": 7}):
        with pytest.raises(CheckFailed) as failure, hidden_test():
            same(7, 12345, "estimate(n_layers=98765)", wrong=wrong)
        assert not {"7", "12,345", "98765"} & set(str(failure.value).replace("=", " ").replace(")", " ").split())
        assert failure.value.slip == next(iter(wrong), None)
    with pytest.raises(CheckFailed), hidden_test():
        raise ZeroDivisionError("at 98765")


def test_a_notebook_shows_the_message_and_no_traceback():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shown = []
    shell._showtraceback = lambda kind, error, lines: shown.extend(lines)
    shell.run_cell("from classroom.checks.expect import same\nsame(7, 5, 'answer')")
    assert shown == ["✗ answer is too large: you have 7.", "  expected 5, got 7"]


def test_questions_are_asked_in_an_order_that_cannot_be_counted_on():
    asked = []
    for _ in range(50):
        assert in_any_order(lambda n: (asked.append(n), n * n)[1], range(5)) == [0, 1, 4, 9, 16]
    orders = [tuple(asked[k : k + 5]) for k in range(0, len(asked), 5)]
    assert len(orders) == 50 and all(sorted(order) == list(range(5)) for order in orders)
    assert len(set(orders)) > 10


def test_of_several_failures_the_first_in_the_order_given_is_told():
    def ask(n):
        if n > 1:
            raise CheckFailed(f"number {n}")

    for _ in range(20):
        with pytest.raises(CheckFailed, match="number 2"):
            in_any_order(ask, range(6))
