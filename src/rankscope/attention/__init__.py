"""The layer for other people's models: attention whose rank, value rank and heads are settings of their own."""
