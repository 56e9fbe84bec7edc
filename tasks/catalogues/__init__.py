"""What describes a bundle to programs: data package, DCAT, Croissant, SDMX."""
