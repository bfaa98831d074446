"""The command ``leveret``: serve, status, tree, ctl, snapshot.

Arguments, words, exit codes; the work is loaded when a command is chosen.
Imports everything of server.
"""
