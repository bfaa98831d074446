"""Reading snapshots without Spark: record batches of Arrow, decoded by numpy.

``reader`` is the entry. Executors of Spark run ``tasks`` and what is below it; these modules need numpy and pyarrow,
but neither LMDB nor the index of a store. ``locating`` alone reads indexes, once per snapshot.
May import msg_store, metadata, amqp, core, and ``errors`` of spark; never pyspark.
"""
