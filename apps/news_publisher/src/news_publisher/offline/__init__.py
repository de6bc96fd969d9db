"""What stands in for the world outside, for trying things out and for tests."""
