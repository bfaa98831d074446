"""Jobs over snapshots: each is a function, and a command of ``leveret``.

``report`` and ``progress`` are what every job takes and gives, ``command`` names the modules of the commands,
``arguments`` has what several of them take. Only modules named ``*_spark`` and ``engine`` import pyspark.
May import the rest of leveret.spark.
"""
