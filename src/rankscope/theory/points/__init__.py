"""Points that are not isotropic: what a score of low rank keeps of their neighbours, and the floor under many heads."""
