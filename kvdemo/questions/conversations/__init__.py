"""Will my conversations reuse it? What a cache would still hold for each request, and why not more. Needs no weights."""
