"""What the functions of one database promise, without a worker."""
