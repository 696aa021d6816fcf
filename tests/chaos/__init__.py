"""Two servers, two workers and much traffic between them, while everything that can fail does: `make chaos`."""
