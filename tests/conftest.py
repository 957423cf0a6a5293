"""Runtime shape checks for every function of the package, and one thread policy for all tests."""

from jaxtyping import install_import_hook

with install_import_hook("rankscope", "beartype.beartype"):
    import rankscope  # noqa: F401
