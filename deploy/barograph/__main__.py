"""`python -m barograph` is the `barograph` command."""

import sys

from barograph.cli import main

sys.exit(main())
