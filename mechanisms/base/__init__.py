"""What every mechanism offers, whatever kind of product it serves.

No mechanism lives here, and nothing that only one kind of product needs.
"""
