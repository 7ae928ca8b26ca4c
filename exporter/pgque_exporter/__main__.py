"""`python -m pgque_exporter` is the same as `pgque-exporter`."""

import sys

from pgque_exporter.cli import main

sys.exit(main())
