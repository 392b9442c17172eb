"""python -m kvdemo ..."""

import sys

from kvdemo.cli import main

sys.exit(main())
