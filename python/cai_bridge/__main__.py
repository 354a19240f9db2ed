"""The command `cai-bridge`, as ``python -m cai_bridge``."""

import sys

from cai_bridge._cli.command import main

if __name__ == "__main__":
    sys.exit(main())
