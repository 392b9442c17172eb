"""Which cache is in force, who decided, how to keep another, and how to go back."""
