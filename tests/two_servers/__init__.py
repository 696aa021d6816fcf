"""Two or more databases, whose workers speak to each other."""
