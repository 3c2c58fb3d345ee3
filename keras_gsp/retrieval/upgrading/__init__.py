"""From one embedding space to another without embedding everything again."""
