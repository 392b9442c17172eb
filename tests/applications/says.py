import atexit
import sys

print("out 1")
print("err 1", file=sys.stderr)
atexit.register(print, "out at the end")
print("out 2")
print("err 2", file=sys.stderr)
print(__name__, __file__, sys.argv, sys.modules["__main__"].__file__ == __file__, sys.path[0])
