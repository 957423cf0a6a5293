"""What training adds to a one-layer transformer: li2024's rates, and closed forms of its first steps."""
