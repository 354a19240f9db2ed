"""Crates that depend on this one, beside each version and loading of cudarc."""
