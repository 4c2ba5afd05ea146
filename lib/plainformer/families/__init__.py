"""Sizes of real models, as data: one TOML file a family."""
