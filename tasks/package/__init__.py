"""What describes the files of a bundle: data package, codebook, citation.

Made from the config's words and the forms of the products; no value of a product is looked at.
"""
