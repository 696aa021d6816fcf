"""Service Broker for PostgreSQL."""

from importlib.metadata import version

from pybroker.connection import AsyncBroker, AsyncTransaction, Broker, Transaction, connect, connect_async
from pybroker.conversation import AsyncConversation, AsyncMessage, Conversation, Message
from pybroker.errors import (
    ArgumentError,
    BrokerError,
    ContractNotFound,
    ConversationGroupMismatch,
    ConversationGroupNotFound,
    ConversationNotFound,
    ConversationStateError,
    DirectionError,
    MessageTypeNotFound,
    MessageTypeNotInContract,
    MessageValidationError,
    NotMigratedError,
    NullBodyError,
    PermissionDenied,
    QueueDisabledError,
    QueueNotFound,
    ServiceNotFound,
)
from pybroker.message import ConversationError

__version__ = version("pybroker")

__all__ = [
    "ArgumentError",
    "AsyncBroker",
    "AsyncConversation",
    "AsyncMessage",
    "AsyncTransaction",
    "Broker",
    "BrokerError",
    "ContractNotFound",
    "Conversation",
    "ConversationError",
    "ConversationGroupMismatch",
    "ConversationGroupNotFound",
    "ConversationNotFound",
    "ConversationStateError",
    "DirectionError",
    "Message",
    "MessageTypeNotFound",
    "MessageTypeNotInContract",
    "MessageValidationError",
    "NotMigratedError",
    "NullBodyError",
    "PermissionDenied",
    "QueueDisabledError",
    "QueueNotFound",
    "ServiceNotFound",
    "Transaction",
    "__version__",
    "connect",
    "connect_async",
]
