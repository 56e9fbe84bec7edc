"""What every page for people is made of: blocks, charts as SVG, one template and style."""
