"""The node: the objects that exist once per broker process.

``node`` holds the objects, ``bootstrap`` fills them from the stored rows; ``broker.tree`` has the actors. Resources and
their watches, message stores, maintenance and snapshots are here too.
May import all of ``broker`` but ``tree`` and ``cluster``.
"""
