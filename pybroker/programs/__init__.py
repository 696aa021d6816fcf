"""Service programs: handlers of messages, and the readers that call them."""
