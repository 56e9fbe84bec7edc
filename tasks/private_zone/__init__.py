"""How a step runs: guarded calls, home and work folders, worker processes, quality gates."""
