"""The output formats of the commands: tables, JSON, CSV, the status page, the tree, progress.

No command is known here; ``json_text`` is the JSON of the control socket too.
Imports config and errors.
"""
