"""The stock-trading application of docs/stock-trading.md, played between two brokers of its own."""
