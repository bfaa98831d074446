"""Parquet: ``export`` and ``ingest`` are the functions and the commands, their plans say what and how.

``rows`` reads files for the sink; ``export_spark`` and ``ingest_spark`` do both in Spark.
"""
