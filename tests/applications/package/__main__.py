import sys

from .answers import answer

assert __name__ == "__main__"
print(answer(sys.argv[1], "abc"))
sys.exit(3)
