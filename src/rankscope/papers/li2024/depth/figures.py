def figures(results): return []
