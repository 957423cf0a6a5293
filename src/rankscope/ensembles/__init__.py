"""Stacks of small models, member axis first: one product serves every member."""
