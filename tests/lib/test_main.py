"""The command line, as a user meets it: what it prints, where, and with which exit code."""

import re
import subprocess
import sys

import gguf
import pytest

import plainformer.__main__ as command_line
from plainformer.__main__ import main
from plainformer.config import Config, preset, presets
from plainformer.model import Transformer
from plainformer.parameters import active, total
from plainformer.pretrained import export
from plainformer.sampling import generate
from plainformer.tokenizer_file import visible
from plainformer.tokens import Tokenizer

TEXT = "🙂 東京 the cat sat on the mat "
SIZES = {"d_model": 48, "n_heads": 8, "n_kv_heads": 4, "n_context": 40, "d_ff": 19, "n_layers": 2, "tied": True}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXT, 260)


@pytest.fixture(scope="module")
def model(fill, tokenizer) -> Transformer:
    return fill(Transformer(Config(n_vocab=tokenizer.n_vocab, **SIZES)))


@pytest.fixture(scope="module")
def file(model, tokenizer, tmp_path_factory):
    """A small random model with its tokenizer, in one file."""
    path, config = tmp_path_factory.mktemp("model") / "tiny.gguf", model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(config.n_vocab)
    writer.add_context_length(config.n_context)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.n_layers)
    writer.add_head_count(config.n_heads)
    writer.add_head_count_kv(config.n_kv_heads)
    writer.add_feed_forward_length(config.d_ff)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    names = [visible(entry) for entry in tokenizer.vocabulary]
    writer.add_token_list(names)
    writer.add_token_types([1] * len(names))
    writer.add_token_merges([f"{names[left]} {names[right]}" for left, right in tokenizer.merges])
    for name, weight in export(model, "llama", kind="gguf").items():
        writer.add_tensor(name, weight.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        code = main([*map(str, arguments)])
    except SystemExit as exit_:  # argparse's own
        code = exit_.code
    return code, *capsys.readouterr()


@pytest.mark.parametrize("name", presets())
def test_count_prints_parts_that_add_up(name, capsys):
    code, out, err = run(capsys, "count", name)
    lines = [re.fullmatch(r"(\w+) +([\d,]+) +(\d+\.\d)%", line) for line in out.splitlines()]
    assert code == 0 and err == "" and all(lines) and len({*map(len, out.splitlines())}) == 1
    rows = {line[1]: (int(line[2].replace(",", "")), float(line[3])) for line in lines}
    n_total, share = rows.pop("total")
    assert n_total == total(preset(name)) and share == 100
    assert ("active" in rows) == (preset(name).n_experts > 1)
    if "active" in rows:
        assert rows.pop("active")[0] == active(preset(name))
    assert sum(n for n, _ in rows.values()) == n_total
    for n, share in rows.values():
        assert n > 0 and share == pytest.approx(100 * n / n_total, abs=0.051)


def test_generate_prints_the_text_and_its_continuation(file, model, tokenizer, capsys):
    prompt = "the cat"
    new = generate(model, [tokenizer.encode(prompt)], 12)[0]
    expected = prompt + tokenizer.decode_bytes(new).decode("utf-8", errors="replace")
    assert run(capsys, "generate", prompt, "--model", file, "--tokens", 12) == (0, expected + "\n", "")


def test_a_seed_repeats_the_draws(file, capsys):
    def drawn(*more):
        code, out, _ = run(capsys, "generate", "the", "--model", file, "--tokens", 20, *more)
        assert code == 0
        return out

    assert drawn("--temperature", 2, "--seed", 1) == drawn("--temperature", 2, "--seed", 1)
    assert len({drawn("--temperature", 2, "--seed", seed) for seed in range(4)}) == 4
    assert drawn("--temperature", 2) != drawn("--temperature", 2), "without a seed chance decides"
    assert drawn("--top-k", 1) == drawn("--top-p", 1e-9) == drawn()


def test_a_character_in_two_tokens_appears_once_it_is_whole(file, tokenizer, monkeypatch, capsys):
    """The model's place is taken by one that writes bytes that we choose; what is printed after each is recorded."""
    bytes_of = "a🙂é".encode() + "東".encode()[:2]
    seen = []

    def write(model, ids, n_new, *, choose, stop, on_token):
        for byte in bytes_of:
            on_token(0, tokenizer.encode(bytes([byte]))[0])
            seen.append(capsys.readouterr().out)

    monkeypatch.setattr(command_line, "generate", write)
    code, out, _ = run(capsys, "generate", "x", "--model", file)
    assert code == 0 and seen == ["xa", "", "", "", "🙂", "", "é", "", ""]
    assert out == "\N{REPLACEMENT CHARACTER}\n", "half a character at the end is shown as such"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["count", "lama-2-7b"], "did you mean 'llama-2-7b'"),
        (["count"], "NAME"),
        ([], "COMMAND"),
        (["cuont", "gpt2-small"], "invalid choice: 'cuont'"),
        (["generate", "x"], "--model"),
        (["generate", "", "--model", "FILE"], "TEXT is empty"),
        (["generate", "x", "--model", "nowhere.gguf"], r"nowhere\.gguf: no such file.*nothing is downloaded"),
        (["generate", "x", "--model", "FILE", "--tokens", "0"], "--tokens 0"),
        (["generate", "x", "--model", "FILE", "--tokens", "many"], "invalid int value: 'many'"),
        (["generate", "x", "--model", "FILE", "--tokens", "41"], "outgrows the context of 40 positions"),
        (["generate", "x", "--model", "FILE", "--temperature", "0"], "temperature=0.0 must be positive.*greedy"),
        (["generate", "x", "--model", "FILE", "--top-k", "0"], "top_k=0"),
        (["generate", "x", "--model", "FILE", "--top-p", "1.5"], "top_p=1.5"),
        (["generate", "x", "--model", "FILE", "--seed", "3"], "--seed changes nothing"),
    ],
)
def test_a_user_s_mistake_is_told_on_one_line_with_code_2(arguments, message, file, capsys):
    code, out, err = run(capsys, *(str(file) if argument == "FILE" else argument for argument in arguments))
    assert code == 2 and re.search(message, err) and "Traceback" not in err
    assert err.splitlines()[-1].startswith("python -m plainformer") and out == ""


@pytest.mark.parametrize("arguments", [["--help"], ["count", "--help"], ["generate", "--help"]], ids=" ".join)
def test_help_names_what_there_is(arguments, capsys):
    code, out, _ = run(capsys, *arguments)
    words = {1: ["count", "generate"], 2: presets() if arguments[0] == "count" else ["--model", "--top-p", "--seed"]}
    assert code == 0 and all(word in out.replace("-\n", "-") or word in out for word in words[len(arguments)])


def test_an_interrupt_ends_without_a_traceback(file, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command_line, "generate", interrupted)
    assert run(capsys, "generate", "x", "--model", file)[0] == 130


def test_it_runs_as_a_module_and_survives_a_closed_pipe():
    command = [sys.executable, "-m", "plainformer", "count", "mixtral-8x7b"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("embed") and not done.stderr
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b"" and process.wait() == 0
