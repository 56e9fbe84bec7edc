"""The pages that people read: a release's report, a plan, ``PRIVACY.md``."""
