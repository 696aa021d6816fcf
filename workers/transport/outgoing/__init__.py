"""The way out: where messages go, batches that leave, and who they leave to."""
