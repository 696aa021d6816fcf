"""Service Broker's definitions in T-SQL: read, printed, and translated to calls of schema `broker`."""
