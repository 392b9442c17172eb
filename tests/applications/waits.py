import sys

try:
    print("waiting", flush=True)
    sys.stdin.read()
finally:
    print("cleaned up", flush=True)
