"""Jobs over snapshots: each is a function, and a command of ``leveret``.

Each job has a folder. Beside them ``command`` names the modules of the commands, ``arguments`` has what several of them
take, ``selection`` chooses messages, ``running`` and ``publishing`` do the work that jobs share, ``report`` and
``progress`` are what every job gives and takes. Only ``engine`` and modules named ``*_spark`` import pyspark.
May import the rest of leveret.spark.
"""
