"""What training would gain, tried step by step."""
