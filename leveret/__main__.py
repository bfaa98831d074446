"""``python -m leveret`` is the command ``leveret``."""

import sys

from leveret.server.cli.main import main

sys.exit(main())
