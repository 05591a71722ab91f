"""`python -m hybridrt`: see `hybridrt.cli`."""

from __future__ import annotations

import sys

from hybridrt.cli import main

if __name__ == "__main__":  # a worker process of `spawn` imports this, too
    sys.exit(main())
