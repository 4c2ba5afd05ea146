"""A tiny model that has learned one thing: to continue words in no order that are said a second time.

Two blocks of two heads, width 32, trained for some seconds on a task that is impossible in the first round of words and
easy in the second. Its heads on one text stand in chapters/data for chapter 3, beside SmolLM2's on the same text.
`python -m classroom.copying` trains it again and writes that file.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from plainformer.attention import attention, attention_weights
from plainformer.config import Config
from plainformer.model import Transformer
from plainformer.training import train

FILE = Path(__file__).resolve().parents[2] / "chapters" / "data" / "copying_patterns.json"
TEXT = ["river", "bird", "thread", "cloth", "page", "wing"] * 2
WORDS = [*TEXT[:6], "blue", "white", "border", "ledger", "weaver", "miller", "stranger", "evening", "sign", "letter"]
SIZES = Config(n_vocab=len(WORDS), d_model=32, n_heads=2, n_kv_heads=2, n_context=16, d_ff=32, n_layers=2)
N_STEPS = 600


def words_said_twice(step: int, n_rows: int = 64) -> Tensor:
    """The ids of a step, (row, word): three to eight different words in no order, and the same again."""
    generator = torch.Generator().manual_seed(step)
    n_words = int(torch.randint(3, 9, (), generator=generator))
    once = torch.stack([torch.randperm(len(WORDS), generator=generator)[:n_words] for _ in range(n_rows)])
    return torch.cat([once, once], 1)


def second_round_loss(model: Transformer, ids: Tensor) -> Tensor:
    """Mean of −ln p in nats over the words that can be known: those of the second round after its first."""
    start = ids.shape[1] // 2
    logits = model(ids[:, :-1])[:, start:]
    return F.cross_entropy(logits.flatten(0, 1), ids[:, start + 1 :].flatten())


def trained() -> Transformer:
    """The model after its training, in double precision so that every processor arrives at the same place."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Transformer(SIZES).double()

    def rate(step: int) -> float:
        return 0.01 * min(1.0, step / 50) * (1 - 0.9 * step / N_STEPS)

    train(
        model,
        words_said_twice,
        N_STEPS,
        learning_rate=rate,
        weight_decay=0.0,
        loss=second_round_loss,
        progress=False,
    )
    return model


@torch.no_grad()
def patterns(model: Transformer, ids: Tensor) -> Tensor:
    """The weights of every head on one text of ids, (1, word): (layer, head, looking, looked at)."""
    seen = []

    def look(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        seen.append(attention_weights(q, k, mask, causal=causal)[0])
        return attention(q, k, v, mask, causal=causal)

    attend, model.attend = model.attend, look
    try:
        model(ids)
    finally:
        model.attend = attend
    return torch.stack(seen)


def write() -> None:
    """Train, and write the heads on TEXT in the form of smollm2_patterns.json: lower triangles, in hundredths."""
    weights = patterns(trained(), torch.tensor([[WORDS.index(word) for word in TEXT]]))
    rows, columns = torch.tril_indices(len(TEXT), len(TEXT))
    hundredths = (100 * weights[..., rows, columns]).round().int().tolist()
    content = {"text": " ".join(TEXT), "tokens": TEXT, "hundredths": hundredths}
    FILE.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    write()
