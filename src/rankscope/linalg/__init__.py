"""Linear algebra and the sphere: sampling, spectra, truncation, factored products."""
