"""What the offline demonstration and the tests need: drawn clips, a bucket and queues."""
