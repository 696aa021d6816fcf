"""The way in: batches that arrive, whose turn they have, and what is passed on."""
