"""Messages on disk: shared segments (.rdq), one journal, group commit, recovery.

``store`` is one vhost's store as channels and queues see it, ``client`` a queue's part of it, ``parts``
puts it together. The folders are layers, checked by import-linter: docs/message-store.md has them.
"""
