"""The density of an inner product, written as it stands in textbooks."""

from rankscope.theory.heads.sphere import density_constant


def inner_product_density(dim, t):
    """c_d (1 − t²)^((d−3)/2): the density of ⟨x, y⟩ on (−1, 1), for x, y independent uniform."""
    return density_constant(dim) * (1 - t**2) ** ((dim - 3) / 2)
