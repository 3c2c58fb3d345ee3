"""What happens between the steps of `fit`."""
