"""python app.py [--port N] ... opens the page; --help lists its switches."""

import sys

from kvdemo.cli.page import main

if __name__ == "__main__":
    sys.exit(main())
