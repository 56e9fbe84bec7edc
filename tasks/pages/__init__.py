"""What every page for people is made of: blocks as values, charts as SVG, one template and style.

Rooms above compose a page of these values; none of them writes HTML. Nothing here knows a kind of
product, reads a file of a bundle, or looks at data.
"""
