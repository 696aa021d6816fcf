"""Why messages wait, and what mends it: findings of `broker.diagnose` and of the command line."""
