"""What Spark finds by itself: it looks for top-level modules ``pyspark_*`` with a ``DefaultSource``.

Without numpy and pyarrow, which the extra ``spark`` installs, there is none; an error here would take the other
data sources of the session away as well.
"""

from importlib.util import find_spec

if find_spec("numpy") and find_spec("pyarrow"):
    from leveret.spark.source import LeveretDataSource as DefaultSource

    __all__ = ["DefaultSource"]
