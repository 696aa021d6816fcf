"""The statements around Service Broker's own: databases, principals, certificates, endpoints, rights."""

from pybroker.tsql.administration import tree
from pybroker.tsql.administration.parsing import begins, read
from pybroker.tsql.administration.printing import print_statement, without_passwords

__all__ = ["begins", "print_statement", "read", "tree", "without_passwords"]
