"""``python -m outlast.cli`` is the command ``outlast``."""

import sys

from outlast.cli import main

sys.exit(main())
