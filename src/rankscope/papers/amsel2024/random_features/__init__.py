"""Random rank-1 heads: how they are drawn, the best weights for them, and the published curve drawn again."""
