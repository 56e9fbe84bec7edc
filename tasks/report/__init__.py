"""The pages that people read: a release's report, a plan before it is paid for.

They are composed of ``tasks.pages`` from what is public, and never see a table of counts.
"""
