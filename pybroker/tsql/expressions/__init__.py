"""T-SQL's expressions and DML: read by sqlglot, printed by our own table of what each node becomes.

What is not in the table is refused with its place, so nothing is approximated in silence.
"""
