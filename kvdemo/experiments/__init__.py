"""Questions answered by several runs: generators of progress, then a result."""
