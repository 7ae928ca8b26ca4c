"""`python -m pgque_pipeline`, and what `spark-submit` is given."""

import sys

from pgque_pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
