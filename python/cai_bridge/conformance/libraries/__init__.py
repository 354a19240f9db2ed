"""Adapters of the libraries that the kit knows; each imports its library when it is asked for."""
