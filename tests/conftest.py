"""Runtime shape checks for every function of the package."""

from jaxtyping import install_import_hook

with install_import_hook("rankscope", "beartype.beartype"):
    import rankscope  # noqa: F401
