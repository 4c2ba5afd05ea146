"""Files of weights: whole ones are read as they are; every cut, damaged or foreign one gives a single kind of error."""

import json
import random
import struct
import sys
from pathlib import Path

import gguf
import numpy
import pytest
import torch
from safetensors.torch import save_file

from plainformer.checkpoints import CheckpointError, open_checkpoint

TENSORS = {"a.weight": torch.arange(15).view(3, 5) / 7, "b": torch.arange(7).half(), "n": torch.arange(4)}


def write_safetensors(folder: Path, config: dict | str | None = None, name="model.safetensors") -> Path:
    save_file(TENSORS, folder / name)
    if config is not None:
        text = config if isinstance(config, str) else json.dumps(config)
        (folder / "config.json").write_text(text, encoding="utf-8")
    return folder / name


def write_gguf(path: Path, *, endian=gguf.GGUFEndian.LITTLE, quantised: bool = True) -> Path:
    writer = gguf.GGUFWriter(path, "llama", endianess=endian)
    writer.add_block_count(3)
    writer.add_float32("llama.x", 0.5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["a", "é", "c"])
    writer.add_tensor("plain.weight", numpy.arange(15, dtype=numpy.float32).reshape(3, 5))
    writer.add_tensor("half.weight", numpy.arange(6, dtype=numpy.float16).reshape(3, 2))
    if quantised:
        rows = numpy.linspace(-1, 1, 128, dtype=numpy.float32).reshape(2, 64)
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor("blocks.weight", gguf.quantize(rows, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read_all(path: Path) -> dict[str, torch.Tensor]:
    return {name: stored.read() for name, stored in open_checkpoint(path).tensors.items()}


def test_safetensors_are_read_as_they_were_written(tmp_path):
    file = write_safetensors(tmp_path, {"a": 1, "b": {"c": [2], "d": {"e": "f"}}, "nothing": None})
    for path in (file, str(file), tmp_path):
        opened = open_checkpoint(path)
        assert opened.kind == "safetensors" and opened.path == Path(path)
        assert opened.metadata == {"a": 1, "b.c": [2], "b.d.e": "f"}
        assert {name: stored.shape for name, stored in opened.tensors.items()} == {
            "a.weight": (3, 5),
            "b": (7,),
            "n": (4,),
        }
        for name, stored in opened.tensors.items():
            assert stored.read().equal(TENSORS[name]) and stored.read().dtype == TENSORS[name].dtype
    assert open_checkpoint(opened) is opened
    (tmp_path / "config.json").unlink()
    assert open_checkpoint(file).metadata == {}


def test_gguf_is_read_as_it_was_written(tmp_path):
    opened = open_checkpoint(write_gguf(tmp_path / "a.gguf"))
    assert opened.kind == "gguf" and opened.metadata["general.architecture"] == "llama"
    assert opened.metadata["llama.block_count"] == 3 and opened.metadata["llama.x"] == 0.5
    assert opened.metadata["tokenizer.ggml.tokens"] == ["a", "é", "c"]
    assert {name: stored.shape for name, stored in opened.tensors.items()} == {
        "plain.weight": (3, 5), "half.weight": (3, 2), "blocks.weight": (2, 64),
    }  # fmt: skip
    read = {name: stored.read() for name, stored in opened.tensors.items()}
    assert all(tensor.dtype == torch.float32 for tensor in read.values())
    assert read["plain.weight"].equal(torch.arange(15.0).view(3, 5))
    assert read["half.weight"].equal(torch.arange(6.0).view(3, 2))
    # Q8_0: 32 numbers share a scale of 1/127 of the largest, and each is rounded to a multiple of it
    step = torch.linspace(-1, 1, 128).view(4, 32).abs().amax(1) / 127
    error = (read["blocks.weight"].view(4, 32) - torch.linspace(-1, 1, 128).view(4, 32)).abs().amax(1)
    assert (error <= step * 0.51).all() and error.max() > 0
    assert open_checkpoint(tmp_path).kind == "gguf", "the one file of a folder"


def test_the_file_is_mapped_and_never_written_to(tmp_path):
    for file in (write_gguf(tmp_path / "a.gguf"), write_safetensors(tmp_path)):
        before = file.read_bytes()
        for stored in open_checkpoint(file).tensors.values():
            tensor = stored.read()
            tensor.zero_()  # a model may be trained
            del tensor
        assert file.read_bytes() == before


def test_shards_of_a_folder_are_read_together(tmp_path):
    for n, name in enumerate(TENSORS):
        save_file({name: TENSORS[name]}, tmp_path / f"model-0000{n + 1}-of-00003.safetensors")
    read = read_all(tmp_path)
    assert read.keys() == TENSORS.keys() and all(read[name].equal(TENSORS[name]) for name in TENSORS)
    save_file({"b": TENSORS["b"]}, tmp_path / "model-00004-of-00003.safetensors")
    with pytest.raises(CheckpointError, match=r"model-00004.*: b stands in another file"):
        open_checkpoint(tmp_path)


def cuts(n_bytes: int) -> list[int]:
    return sorted({*range(min(n_bytes, 40)), *range(40, n_bytes, 37), n_bytes - 1})


@pytest.mark.parametrize("write", [write_gguf, lambda path: write_safetensors(path.parent, name="a.safetensors")])
def test_a_file_cut_anywhere_is_refused(write, tmp_path):
    file = write(tmp_path / "a.gguf")
    whole = file.read_bytes()
    read_all(file)
    # a GGUF file may end in filler that no tensor needs
    last = len(whole) - 32 if file.suffix == ".gguf" else len(whole)
    for n_bytes in cuts(len(whole)):
        file.write_bytes(whole[:n_bytes])
        if n_bytes <= last:
            with pytest.raises(CheckpointError, match=f"{file.name}: .*(cut short|expected the magic)"):
                open_checkpoint(file)


@pytest.mark.parametrize("write", [write_gguf, lambda path: write_safetensors(path.parent, {"a": 1}, "a.safetensors")])
def test_a_damaged_file_is_read_or_refused_and_nothing_else_happens(write, tmp_path):
    file = write(tmp_path / "a.gguf")
    whole, dice, refused = file.read_bytes(), random.Random(1), 0
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(dice.choice([1, 1, 4])):
            damaged[dice.randrange(min(len(damaged), 700))] = dice.randrange(256)
        file.write_bytes(damaged)
        try:
            read_all(file)
        except CheckpointError as error:
            refused += str(file) in str(error)
    assert refused > 50


def test_a_big_endian_gguf_is_refused_by_that_name(tmp_path):
    with pytest.raises(CheckpointError, match=r"a\.gguf: big-endian.*little-endian.*gguf-convert-endian"):
        open_checkpoint(write_gguf(tmp_path / "a.gguf", endian=gguf.GGUFEndian.BIG, quantised=False))


@pytest.mark.parametrize("start", [b"", b"GGML", b"FUGG\x03\0\0\0", b"PK\x03\x04", b"version https://git-lfs"])
def test_another_file_that_is_called_gguf_is_refused(start, tmp_path):
    file = tmp_path / "a.gguf"
    file.write_bytes(start + bytes(100 if start else 0))
    with pytest.raises(CheckpointError, match=r"a\.gguf: expected the magic b'GGUF'"):
        open_checkpoint(file)


def test_an_unknown_version_of_gguf_is_refused(tmp_path):
    file = write_gguf(tmp_path / "a.gguf")
    file.write_bytes(b"GGUF" + struct.pack("<I", 99) + file.read_bytes()[8:])
    with pytest.raises(CheckpointError, match="version 99"):
        open_checkpoint(file)


@pytest.mark.parametrize("content", [b"", b"\xff" * 200, b"version https://git-lfs.github.com/spec/v1", b"{}" * 50])
def test_another_file_that_is_called_safetensors_is_refused(content, tmp_path):
    file = tmp_path / "a.safetensors"
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"a\.safetensors: cut short or damaged"):
        open_checkpoint(file)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "weights.npz"])
def test_other_kinds_are_refused_unread(name, tmp_path):
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(CheckpointError, match=rf"{name}: expected a \.gguf or \.safetensors.*pickled"):
        open_checkpoint(tmp_path / name)


@pytest.mark.parametrize("name", ["nowhere.gguf", "gpt2", "org/model"])
def test_what_is_not_there_is_not_downloaded(name, tmp_path):
    with pytest.raises(CheckpointError, match=r"no such file\. A local path is needed; nothing is downloaded"):
        open_checkpoint(tmp_path / name)


def test_a_folder_needs_weights_and_one_model_s(tmp_path):
    with pytest.raises(CheckpointError, match=r"one \.gguf file in the folder, found neither"):
        open_checkpoint(tmp_path)
    write_gguf(tmp_path / "a.gguf")
    write_gguf(tmp_path / "b.gguf")
    with pytest.raises(CheckpointError, match=r"found a\.gguf, b\.gguf"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "damaged"), ("[1]", "JSON object.*found a list"), ('"a"', "a str")]
)
def test_a_config_file_that_is_none_is_refused(text, message, tmp_path):
    with pytest.raises(CheckpointError, match=rf"config\.json: .*{message}"):
        open_checkpoint(write_safetensors(tmp_path, text))


@pytest.mark.parametrize("package", ["gguf", "safetensors"])
def test_without_the_package_the_message_says_what_to_install(package, monkeypatch, tmp_path):
    files = {"gguf": write_gguf(tmp_path / "a.gguf"), "safetensors": write_safetensors(tmp_path)}
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        open_checkpoint(files[package])


def test_a_quantisation_that_gguf_cannot_undo_is_named(tmp_path, monkeypatch):
    def cannot(data, kind):
        raise NotImplementedError

    opened = open_checkpoint(write_gguf(tmp_path / "a.gguf"))
    monkeypatch.setattr(gguf, "dequantize", cannot)
    with pytest.raises(CheckpointError, match=r"a\.gguf: blocks\.weight is stored as Q8_0"):
        opened.tensors["blocks.weight"].read()
