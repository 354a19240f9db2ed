"""Defines every requirement, in the order that reports list them."""

__all__: list[str] = []
