"""The command line: ``python -m plainformer count NAME`` and ``python -m plainformer generate TEXT --model PATH``."""

from __future__ import annotations

import argparse
import codecs
import functools
import os
import sys

import torch

from plainformer.attention import fast_attention
from plainformer.checkpoints import open_checkpoint
from plainformer.config import preset, presets
from plainformer.parameters import active, breakdown, total
from plainformer.pretrained import load, stop_ids, tokenizer_of
from plainformer.sampling import generate, greedy, sample


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns its exit code. A user's mistake is one line on stderr and code 2, no traceback."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        given.command(given)
        sys.stdout.flush()
    except (ValueError, ImportError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # whoever read the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"{parser.prog} {given.name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m plainformer", description="The Transformer from first principles.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="name")

    counting = commands.add_parser(
        "count",
        help="the parameters of a known model, part by part",
        description="Prints the parameters of a known model, part by part, with each part's share.",
        epilog=f"Models: {', '.join(presets())}.",
    )
    counting.add_argument("model", metavar="NAME", help="such as gpt2-small")
    counting.set_defaults(command=_count)

    writing = commands.add_parser(
        "generate",
        help="continue a text with the weights of a local file",
        description="Continues a text, word by word as it comes, with the weights of a file on this machine. "
        "Takes the likeliest token each time, unless --temperature, --top-k or --top-p ask to draw one.",
    )
    writing.add_argument("text", metavar="TEXT", help="the beginning")
    writing.add_argument("--model", required=True, metavar="PATH", help="a .gguf file, or a folder with safetensors")
    writing.add_argument("--tokens", type=int, default=40, metavar="N", help="at most N new tokens (default: 40)")
    writing.add_argument(
        "--temperature", type=float, metavar="T", help="divides the scores before drawing (default: 1)"
    )
    writing.add_argument("--top-k", type=int, metavar="K", help="draw from the K likeliest tokens")
    writing.add_argument("--top-p", type=float, metavar="P", help="draw from the likeliest that reach probability P")
    writing.add_argument("--seed", type=int, metavar="S", help="the same draws again")
    writing.set_defaults(command=_generate)
    return parser


def _count(given: argparse.Namespace) -> None:
    config = preset(given.model)
    n_total = total(config)
    rows = {part: n for part, n in breakdown(config).items() if n} | {"total": n_total}
    if config.n_experts > 1:
        rows["active"] = active(config)  # what one token meets
    for part, n in rows.items():
        print(f"{part:<15} {n:>17,} {n / n_total:>7.1%}")


def _generate(given: argparse.Namespace) -> None:
    drawn = {name: getattr(given, name) for name in ("temperature", "top_k", "top_p")}
    drawn = {name: value for name, value in drawn.items() if value is not None}
    if not given.text:
        raise ValueError("TEXT is empty; give the model at least one word to continue.")
    if given.tokens < 1:
        raise ValueError(f"--tokens {given.tokens}: expected at least 1.")
    if given.seed is not None and not drawn:
        raise ValueError("--seed changes nothing without --temperature, --top-k or --top-p: no token is drawn.")
    choose = greedy
    if drawn:
        generator = torch.Generator()
        generator.seed() if given.seed is None else generator.manual_seed(given.seed)
        choose = functools.partial(sample, **drawn, generator=generator)
        choose(torch.zeros(1, 2))  # a wrong argument is told before a model is read
    checkpoint = open_checkpoint(given.model)
    tokenizer, stop = tokenizer_of(checkpoint), stop_ids(checkpoint)
    model = load(checkpoint, attend=fast_attention)

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character shows a mark
    characters = codecs.getincrementaldecoder("utf-8")(errors="replace")  # keeps back half a character
    beginning = iter([given.text])  # printed with the first token: by then nothing is left to refuse

    def show(_: int, token: int) -> None:
        print(next(beginning, "") + characters.decode(tokenizer.decode_bytes([token])), end="", flush=True)

    generate(model, [tokenizer.encode(given.text)], given.tokens, choose=choose, stop=stop, on_token=show)
    print(next(beginning, "") + characters.decode(b"", final=True))


if __name__ == "__main__":
    sys.exit(main())
