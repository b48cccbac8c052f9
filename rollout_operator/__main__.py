"""The program as `python -m rollout_operator`."""

import sys

from rollout_operator.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
