"""garg2022: learning in context, and whether more heads make it worse."""
