"""The questions of Compare: the table of them, and one room each."""
