"""Feedback for exercises: one mechanism a check, and messages that name the likely slip."""
