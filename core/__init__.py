"""Basics of all layers: clock, files, limits, errors, log; imports no other part of Leveret."""
