"""The columns of a queue, as RECEIVE and SELECT see them."""

from __future__ import annotations

from pybroker.tsql.expressions import types
from pybroker.tsql.expressions.types import Family, Type

_NAME = Type("text", Family.TEXT)
MESSAGE: dict[str, Type] = {
    "status": types.BIT,
    "priority": Type("smallint", Family.INTEGER),
    "queuing_order": types.BIGINT,
    "conversation_group_id": types.UUID,
    "conversation_handle": types.UUID,
    "message_sequence_number": types.BIGINT,
    "service_name": _NAME,
    "service_id": types.INTEGER,
    "service_contract_name": _NAME,
    "service_contract_id": types.INTEGER,
    "message_type_name": _NAME,
    "message_type_id": types.INTEGER,
    "validation": _NAME,
    "message_body": types.BINARY,
    "message_id": types.UUID,
    "message_enqueue_time": types.OFFSET,
}
