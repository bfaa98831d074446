"""What commands print: tables, JSON, CSV, status, progress.

Formats only; no command is known here.
Imports nothing of server.
"""
