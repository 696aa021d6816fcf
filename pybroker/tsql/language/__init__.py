"""The language around definitions: conversations, variables, control flow, modules, queries."""

from pybroker.tsql.language import tree
from pybroker.tsql.language.reading import read

__all__ = ["read", "tree"]
