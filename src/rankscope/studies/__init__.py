"""What is asked beyond the papers, a package for each question."""
