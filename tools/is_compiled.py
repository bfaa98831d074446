"""Fail unless the kernels, and the message's path if LEVERET_COMPILED is ``require``, are compiled and up to date.

LEVERET_COMPILED=require LEVERET_KERNEL=c .venv/bin/python tools/is_compiled.py
"""

from pathlib import Path

import leveret
from leveret.core.compiled import choose_kernel

for package in ("amqp", "core.system", "msg_store.format"):
    choose_kernel(f"leveret.{package}", Path(leveret.__file__).parent / package.replace(".", "/"))
