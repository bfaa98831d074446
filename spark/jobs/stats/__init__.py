"""Statistics: ``stats`` is the function and the command, ``message_counts`` counts, ``page`` writes HTML."""
