"""Studies that go beyond the papers, one package per question."""
