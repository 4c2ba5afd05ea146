"""What crosses between a student's process and the judge: it comes out as it went in, and no bytes do any harm."""

from __future__ import annotations

import collections
import contextlib
import math
import pickle
import tracemalloc

import matplotlib.figure  # noqa: F401  (loaded before memory is counted)
import msgpack
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from classroom.grading import plain
from classroom.grading.plain import Handle, NotPlain, decode, encode

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
]
numbers = st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers()
texts = st.text(st.characters()) | st.text(st.characters(categories=["Cs"]), max_size=3) | st.binary()
keys = numbers | texts | st.tuples(st.integers(), texts) | st.frozensets(st.integers())
tensors = st.builds(
    lambda shape, dtype, leaf: torch.ones(shape, dtype=dtype).requires_grad_(leaf and dtype.is_floating_point),
    st.lists(st.integers(0, 3), max_size=4),
    st.sampled_from(DTYPES),
    st.booleans(),
)
arrays = st.builds(
    lambda shape, kind: np.arange(math.prod(shape)).astype(kind).reshape(shape),
    st.lists(st.integers(0, 3), max_size=4),
    st.sampled_from(["?", "i1", "<u8", "<f4", "<f8", "<c16"]),
)
others = st.sampled_from(
    [torch.float32, torch.Size([2, 3]), range(3, 9, 2), range(0), np.float32(1.5), np.int64(-3), ...]
)
values = st.recursive(
    numbers | texts | tensors | arrays | others.filter(lambda one: one is not ...),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.sets(keys, max_size=4)
        | st.lists(inner, max_size=4).map(collections.deque)
        | st.dictionaries(keys, inner, max_size=3).map(collections.OrderedDict)
    ),
    max_leaves=20,
)


def refuse(_):
    raise AssertionError("nothing of this kind was sent")


def across(value, **sides):
    return decode(encode(value, refuse), refuse, refuse, **sides)


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and one.requires_grad == other.requires_grad
        assert torch.equal(one, other)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    elif isinstance(one, dict):
        assert len(one) == len(other)
        for (a, b), (c, d) in zip(one.items(), other.items()):
            assert_same(a, c)
            assert_same(b, d)
    elif isinstance(one, list | tuple | collections.deque):
        assert len(one) == len(other)
        for a, b in zip(one, other):
            assert_same(a, b)
    elif isinstance(one, set | frozenset):
        assert len(one) == len(other)
        assert one == other or "nan" in repr(one)
    else:
        assert repr(one) == repr(other)  # nan, and minus nought


@given(values)
def test_a_value_comes_out_as_it_went_in(value):
    assert_same(across(value), value)


@given(st.integers(-(2**20_000), 2**20_000))
def test_ints_of_any_size_cross(value):
    assert across(value) == value


def test_a_tensor_that_stands_in_a_value_twice_is_one_tensor():
    one = torch.zeros(2)
    first, second, other = across([one, one, torch.zeros(2)])
    assert first is second is not other


def test_views_arrive_as_what_they_show():
    whole = torch.arange(12.0).reshape(3, 4)
    for view in (whole.T, whole[1:, ::2], whole[0].expand(5, 4), torch.complex(whole, whole).conj()):
        assert torch.equal(across(view), view)


def test_no_subclass_of_a_plain_type_is_plain():
    """Each stays where it is, and only its number crosses."""

    class Tensor(torch.Tensor): ...

    class Array(np.ndarray): ...

    odd = [type("Odd", (kind,), {})() for kind in (int, float, str, bytes, list, tuple, dict, set, frozenset, complex)]
    odd += [torch.zeros(2).as_subclass(Tensor), np.zeros(2).view(Array), np.zeros(2, dtype=object), np.array(["a"])]
    odd += [collections.namedtuple("Two", "a b")(1, 2), torch.zeros(2).to_sparse(), object(), print, int]
    kept = []

    def keep(value):
        kept.append(value)
        return Handle(len(kept) - 1, type(value).__name__, callable(value))

    handles = decode(encode(odd, keep), lambda handle: handle, refuse)
    assert all(type(handle) is Handle for handle in handles)
    assert [id(kept[handle.number]) for handle in handles] == [id(value) for value in odd]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused_and_nothing_else_happens(data):
    read(data)


def read(data: bytes) -> None:
    with contextlib.suppress(NotPlain):
        decode(data, lambda handle: handle, {}.__getitem__)


@given(values, st.data())
def test_a_message_with_wrong_bytes_is_refused_or_is_plain_data(value, draw):
    data = bytearray(encode(value, refuse))
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    read(bytes(data[: draw.draw(st.integers(0, len(data)))]))
    read(bytes(data))


contents = st.recursive(
    st.booleans() | st.floats() | st.integers(0, 99) | st.binary() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=5),
    max_leaves=8,
)


@given(st.integers(0, 127), contents)
def test_kinds_with_any_content_are_refused_or_plain(code, content):
    read(msgpack.packb(msgpack.ExtType(code, msgpack.packb(content))))


class Telling:
    def __reduce__(self):
        return pickle.loads, (b"not even a pickle",)


@pytest.mark.parametrize("content", [pickle.dumps(Telling()), msgpack.packb([0, pickle.dumps(Telling())])])
def test_the_judge_never_reads_a_pickle(content, monkeypatch):
    monkeypatch.setattr(plain.pickle, "loads", lambda *_: pytest.fail("a pickle was read"))
    with pytest.raises(NotPlain):
        decode(msgpack.packb([msgpack.ExtType(plain._PICKLE, content)]), refuse, refuse)


def test_models_are_pickled_for_who_may_take_them_and_only_for_them():
    linear = torch.nn.Linear(2, 3)
    handles = []

    def keep(value):
        handles.append(value)
        return Handle(0, "Linear", True)

    (other,) = decode(encode([linear], keep, models={}), refuse, refuse, models={})
    assert torch.equal(other.weight, linear.weight) and other is not linear and not handles
    encode([linear], keep)
    assert handles == [linear]


@pytest.mark.parametrize(
    "claim",
    [
        [plain._TENSOR, ["float32", [2**40], b"1234", False]],
        [plain._TENSOR, ["float32", [2**62, 4], b"", False]],
        [plain._TENSOR, ["float32", [-1], b"1234", False]],
        [plain._TENSOR, ["float32", [1] * 100, b"1234", False]],
        [plain._TENSOR, ["int64", [1], b"12345678", True]],
        [plain._TENSOR, ["bool", [1], b"\2", False]],
        [plain._TENSOR, ["quint8", [1], b"\1", False]],
        [plain._TENSOR, ["no type", [1], b"\1", False]],
        [plain._ARRAY, ["<f8", [2**40], b"12345678"]],
        [plain._ARRAY, ["<f8", [-1], b"12345678"]],
        [plain._ARRAY, ["|O", [1], b"12345678"]],
        [plain._ARRAY, ["|b1", [1], b"\2"]],
        [plain._SCALAR, ["<f8", b"1"]],
        [plain._SET, [[[]]]],
        [plain._RANGE, [0, 1, 0]],
        [plain._SIZE, [1.5]],
        [plain._OWN, 7],
        [plain._OWN, []],
        [plain._AGAIN, 0],
        [plain._HANDLE, [1, 2, 3]],
        [plain._COMPLEX, [1, 2]],
        [plain._COLLECTION, ["defaultdict", [1]]],
        [plain._COLLECTION, ["print", {}]],
        [plain._DRAWING, {"lines": 3}],
        [plain._DRAWING, []],
        [99, []],
    ],
    ids=str,
)
def test_a_small_message_cannot_claim_what_it_does_not_hold(claim):
    code, content = claim
    data = msgpack.packb([msgpack.ExtType(code, msgpack.packb(content))])
    tracemalloc.start()
    with pytest.raises(NotPlain):
        decode(data, lambda handle: handle, {}.__getitem__)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**24


def test_containers_too_deep_or_in_themselves_are_refused_on_both_sides():
    deep: list = []
    deep.append(deep)
    with pytest.raises(NotPlain):
        encode(deep, refuse)
    for wrap in (
        lambda inner: b"\x91" + inner,
        lambda inner: msgpack.packb(msgpack.ExtType(plain._TUPLE, b"\x91" + inner)),
    ):
        data = b"\xc0"
        for _ in range(2_000):
            data = wrap(data)
        with pytest.raises(NotPlain):
            decode(data, refuse, refuse)
