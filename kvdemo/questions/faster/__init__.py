"""Is it faster? One prompt, two or more strategies."""
