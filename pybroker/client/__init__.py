"""The client: brokers, transactions and conversations, each for threads and for asyncio."""
