"""The command `cai-bridge`, as ``python -m cai_bridge``."""

import sys

from cai_bridge._cli.command import main

sys.exit(main())
