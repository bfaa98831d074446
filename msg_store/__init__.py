"""Messages on disk: shared segments (.rdq), one journal, group commit, recovery.

``store`` is one vhost's store, made of the parts in the folders; ``client`` is a queue's access to it, ``drivers``
has the threads and constants it is made with, ``stats`` its statistics. The folders are layers, checked by
import-linter: docs/message-store.md has them. Imports amqp and core only.
"""
