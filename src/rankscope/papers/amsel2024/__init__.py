"""amsel2024: rank against heads."""
