"""Replay: ``plan`` says what and how, ``rewrite`` what becomes of a message, ``routes`` counts where messages would go.

``replay`` is the function and the command, and publishes from this process; ``replay_spark`` does it in Spark.
"""
