"""What an operator runs: the supervisor, and beside it activation, transport and periodic tasks."""
