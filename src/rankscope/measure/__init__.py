"""Measurements: tensors in, tensors out."""
