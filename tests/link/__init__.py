"""Crates outside that depend on this one, beside whatever version and loading of cudarc they chose."""
