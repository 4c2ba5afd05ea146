"""Numbers of exercise 13: the two checkpoints of problem 2."""

from __future__ import annotations

# name, hidden_size, heads, key heads, vocab_size, all as their settings say; tied, with a width that 32 divides
NUMBERS = {
    ("MODEL", "D_MODEL", "N_HEADS", "N_KV_HEADS", "N_VOCAB"): (
        ("SmolLM2-360M", 960, 15, 5, 49_152), ("SmolLM2-135M", 576, 9, 3, 49_152),
        ("Qwen2.5-0.5B", 896, 14, 2, 151_936), ("Qwen2.5-1.5B", 1536, 12, 2, 151_936),
    ),
    ("GPT2_NAME", "GPT2_WIDTH"): (("medium", 1024), ("small", 768), ("large", 1280), ("XL", 1600)),
}  # fmt: skip
KEEPS = ("predict",)


def lines(
    MODEL: str, D_MODEL: int, N_HEADS: int, N_KV_HEADS: int, N_VOCAB: int, GPT2_NAME: str, GPT2_WIDTH: int
) -> dict[str, list[str]]:
    return {
        "p2": [
            f"The settings of {MODEL} say: `hidden_size` {D_MODEL:,}, `num_attention_heads` {N_HEADS}, "
            f"`num_key_value_heads` {N_KV_HEADS},",
            f"`vocab_size` {N_VOCAB:,}, `tie_word_embeddings` true. A number takes two bytes.",
            f"   Its shape in the file of GPT-2 {GPT2_NAME}, whose `n_embd` is {GPT2_WIDTH:,}.",
        ],
        "p2-answer": [
            f"k_shape = ({N_KV_HEADS} * {D_MODEL:_} // {N_HEADS}, {D_MODEL:_})",
            f"c_attn_shape = ({GPT2_WIDTH:_}, 3 * {GPT2_WIDTH:_})",
            f"q8_bytes = {N_KV_HEADS} * {D_MODEL:_} // {N_HEADS} * {D_MODEL:_} // 32 * (2 + 32)",
            f"untied_bytes = {N_VOCAB:_} * {D_MODEL:_} * 2",
        ],
    }
