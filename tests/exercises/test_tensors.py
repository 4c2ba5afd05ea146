"""Checks of functions of tensors: what passes, what is told, and that inputs must stay as they were."""

import pytest
import torch

from classroom.checks.expect import CheckFailed
from classroom.checks.tensors import TOUCHED, agrees, numbers

X = numbers(3, 4)


def doubled(x):
    return 2 * x


def test_numbers_leave_torch_s_own_generator_alone():
    before = torch.get_rng_state()
    assert torch.equal(numbers(5, key=1), numbers(5, key=1)) and not torch.equal(numbers(5, key=1), numbers(5, key=2))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("scale", [1, 1e6])
def test_an_answer_in_float32_is_right_at_any_size(scale):
    agrees(lambda x: doubled(x.float()), "f", {"x": scale * X}, doubled(scale * X), {})


def test_a_slip_is_named_and_does_not_see_what_the_answer_did_to_its_inputs():
    def spoils(x):
        x.zero_()
        return X + 1

    with pytest.raises(CheckFailed) as failure:
        agrees(spoils, "f", {"x": X.clone()}, doubled(X), {"one was added": lambda x: x + 1})
    assert failure.value.slip == "one was added"


@pytest.mark.parametrize("arguments", [{"x": X}, {"x": [X, X]}, {"x": {"a": X}}], ids=["tensor", "list", "dict"])
def test_a_right_answer_that_spoils_its_input_is_told_so(arguments):
    def spoils(x):
        first = x if isinstance(x, torch.Tensor) else next(iter(x.values() if isinstance(x, dict) else x))
        return first.mul_(2).clone()

    kept = X.clone()
    with pytest.raises(CheckFailed) as failure:
        agrees(spoils, "f", arguments, doubled(X), {})
    assert failure.value.slip == TOUCHED
    assert torch.equal(X, kept)  # the check's own numbers are never handed out


def test_parts_of_an_answer_are_compared_one_by_one():
    right = (X, torch.tensor([1, 2]))
    agrees(lambda x: [x, torch.tensor([1, 2])], "f", {"x": X}, right, {})
    with pytest.raises(CheckFailed, match=r"f\[1\]"):
        agrees(lambda x: (x, torch.tensor([1, 3])), "f", {"x": X}, right, {})


def test_a_call_that_raises_shows_a_tensor_by_its_shape():
    with pytest.raises(CheckFailed, match=r"f\(x=<tensor of shape \(3, 4\)>\) raises ZeroDivisionError"):
        agrees(lambda x: 1 / 0, "f", {"x": X}, X, {})
