import sys

for line in sys.stdin:
    print("read", line.strip())
