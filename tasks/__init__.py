"""The only I/O: counting, quality gates, ledger, entropy, writing, publishing."""
