"""Changes to the Python that judges, and whether its tests notice."""
