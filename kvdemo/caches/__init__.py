"""The subject of the project: the cache strategies, what a live cache weighs, and caches kept between requests."""
