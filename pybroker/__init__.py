"""Service Broker for PostgreSQL."""

from importlib.metadata import version

from pybroker.client.broker import Broker, connect
from pybroker.client.broker_async import AsyncBroker, connect_async
from pybroker.client.conversation import Conversation, Message
from pybroker.client.conversation_async import AsyncConversation, AsyncMessage
from pybroker.client.session import Transaction
from pybroker.client.session_async import AsyncTransaction
from pybroker.definitions import (
    BrokerPriority,
    Contract,
    DefinitionError,
    Grant,
    MessageType,
    Plan,
    Queue,
    RemoteServiceBinding,
    Route,
    SchemaCollection,
    Service,
)
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
from pybroker.programs.app import App
from pybroker.programs.conversation import ProgramConversation
from pybroker.programs.conversation_async import AsyncProgramConversation
from pybroker.programs.service_program import ServiceProgram, UnhandledMessageType

__version__ = version("pybroker")

__all__ = [
    "App",
    "ArgumentError",
    "AsyncBroker",
    "AsyncConversation",
    "AsyncMessage",
    "AsyncProgramConversation",
    "AsyncTransaction",
    "Broker",
    "BrokerError",
    "BrokerPriority",
    "Contract",
    "ContractNotFound",
    "Conversation",
    "ConversationError",
    "ConversationGroupMismatch",
    "ConversationGroupNotFound",
    "ConversationNotFound",
    "ConversationStateError",
    "DefinitionError",
    "DirectionError",
    "Grant",
    "Message",
    "MessageType",
    "MessageTypeNotFound",
    "MessageTypeNotInContract",
    "MessageValidationError",
    "NotMigratedError",
    "NullBodyError",
    "PermissionDenied",
    "Plan",
    "ProgramConversation",
    "Queue",
    "QueueDisabledError",
    "QueueNotFound",
    "RemoteServiceBinding",
    "Route",
    "SchemaCollection",
    "Service",
    "ServiceNotFound",
    "ServiceProgram",
    "Transaction",
    "UnhandledMessageType",
    "__version__",
    "connect",
    "connect_async",
]
