"""Streaming the archive of a running broker, without Spark: offsets, planning, admission, tasks.

``spark.stream_source`` makes Spark's source of it. ``following`` is the entry, ``offsets`` has the theory. Tasks need
numpy and pyarrow, and neither the index of a store nor the broker.
May import scan, ``schema``, ``options`` and ``errors`` of spark, msg_store and core; never pyspark.
"""
