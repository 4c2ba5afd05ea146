"""Synthetic submissions with the marks they must get: one module for each assignment, called by its stem.

The hostile ones are apart from these, in `hostile`.
"""
