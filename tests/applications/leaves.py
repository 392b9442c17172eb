import atexit
import sys

atexit.register(print, "cleaned up")
how = sys.argv[1]
if how == "text":
    sys.exit("goodbye")
if how == "interrupt":
    raise KeyboardInterrupt
if how == "error":
    raise LookupError("as it always did")
sys.exit(None if how == "none" else int(how))
