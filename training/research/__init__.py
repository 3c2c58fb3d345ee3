"""What the project measures itself by: studies, experiments, benchmarks."""
