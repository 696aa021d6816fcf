"""Specifications in TLA+ of what the SQL functions promise each other, and the program that has TLC check them.

`<name>.tla` is a specification, `<name>.cfg` its bounds at each landing, `<name>.nightly.cfg` those of the night. Its constant
Mutant names a mistake that the specification then makes, and that TLC must find. In a .cfg, `\\* WITNESS name` is an
invariant that must not hold: else the bounds would be too small for what the specification is about.
"""
