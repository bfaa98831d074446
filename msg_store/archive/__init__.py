"""The archive: segments that stay for replays although their messages are settled, and the files that describe it.

May import: format.
"""
