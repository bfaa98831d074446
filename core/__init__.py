"""Vocabulary that more than one layer needs; imports nothing of Leveret."""
