"""The command line: the commands, what they print and the files they write."""
