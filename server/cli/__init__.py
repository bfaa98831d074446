"""The command ``leveret``: serve, status, tree, ctl, snapshot, store, gm, perf.

Arguments, texts and exit codes; the code of a command is loaded when the command is chosen.
Imports every part of the server.
"""
