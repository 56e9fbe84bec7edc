"""Private sources: engines that open and count them, declared discretisation, their files."""
