"""li2024: what training adds is low-rank, and some neurons stay small."""
