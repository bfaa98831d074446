"""Dead letters by group: ``dlq`` is the function and the command, ``groups`` counts."""
