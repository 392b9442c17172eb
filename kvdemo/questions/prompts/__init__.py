"""On my prompts? One comparison per prompt of a set."""
