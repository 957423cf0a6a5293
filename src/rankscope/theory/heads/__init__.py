"""What a head of low rank cannot do, and what heads of any rank can: amsel2024's bounds and closed forms."""
