"""The publishers of a queue: their credit and confirms, and the filter of duplicates by producer."""
