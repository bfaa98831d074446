"""Basics of all layers: clock, files, limits, errors, log, messages and entries; imports no other part of Leveret."""
