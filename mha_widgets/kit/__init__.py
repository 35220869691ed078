"""What explorers have in common."""
