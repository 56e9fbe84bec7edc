"""What catalogues and statistical software read of a bundle: DCAT, Croissant and SDMX.

Each module makes files from the public files of a bundle's folder, ``datapackage.json``,
``privacy.json`` and ``data/``, and from nothing else. Nothing here draws, knows a mechanism or
reads the source.
"""
