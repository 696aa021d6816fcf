"""The T-SQL of the book chapter on Service Broker, as it is printed, and the misprints that are mended.

Comments are left out; quotes that the typesetter made round are straight.
"""

from __future__ import annotations

PRINTED = {
    "15-2": """
CREATE MESSAGE TYPE [//www.develop.com/DMBrokerage/TradeEntry]
VALIDATION = WELL_FORMED_XML
CREATE MESSAGE TYPE [//www.develop.com/DMBrokerage/TradeAck]
VALIDATION = WELL_FORMED_XML
""",
    "15-3": """
CREATE XML SCHEMA COLLECTION TradeEntrySchema
AS N'<?xml version="1.0" ?>
<xsd:schema xmlns:xsd="http://www.w3.org/2001/XMLSchema"
targetNamespace="http://www.develop.com/DMBrokerage/schemas/tradeEntry">
<xsd:complexType name="tradeEntry">
<xsd:sequence>
<xsd:element name="RICCODE" type="xsd:string"/>
<xsd:element name="CustomerID" type="xsd:int"/>
<xsd:element name="OrderID" type="xsd:int"/>
<xsd:element name="Date" type="xsd:date"/>
<xsd:element name="BuySell" type="xsd:date"/>
<xsd:element name="Volume" type="xsd:int"/>
<xsd:element name="Price" type="xsd:decimal"/>
</xsd:sequence>
</xsd:complexType>
</xsd:schema>'
CREATE MESSAGE TYPE [//www.develop.com/DMBrokerage/TradeEntry]
VALIDATION = VALID_XML WITH SCHEMA COLLECTION TradeEntrySchema
CREATE XML SCHEMA COLLECTION
N'<?xml version="1.0" ?>
"http://www.w3.org/2001/XMLSchema"
targetNamespace="http://www.develop.com/DMBrokerage/schemas/tradeAck">
<xsd:complexType name="tradeAck">
<xsd:sequence>
<xsd:element name="OrderID" type="xsd:int"/>
<xsd:element name="AckId" type="xsd:int"/>
</xsd:sequence>
</xsd:complexType>
</xsd:schema>'
CREATE MESSAGE TYPE [//www.develop.com/DMBrokerage/TradeAck]
VALIDATION = VALID_XML WITH SCHEMA COLLECTION TradeAckSchema
""",
    "15-6": """
CREATE CONTRACT [//www.develop.com/DMBrokerage/EnterTrade]
(
[//www.develop.com/DMBrokerage/TradeEntry] SENT BY INITIATOR,
[//www.develop.com/DMBrokerage/TradeAck] SENT BY TARGET
)
""",
    "before 15-8, Trader1": """
CREATE PROCEDURE tradeAckProc
AS
RETURN 0
GO
""",
    "before 15-8, DMBrokerage": """
CREATE PROCEDURE tradeEntryProc
AS
RETURN 0
""",
    "15-8": """
USE Trader1
GO
CREATE QUEUE tradeAckQueue
WITH STATUS = ON,
ACTIVATION (
PROCEDURE_NAME = tradeAckProc,
MAX_QUEUE_READERS = 5,
EXECUTE AS SELF)
USE DMBrokerage
GO
CREATE QUEUE tradeEntryQueue
WITH STATUS = ON,
ACTIVATION (
PROCEDURE_NAME = tradeEntryProc,
MAX_QUEUE_READERS = 5,
EXECUTE AS SELF)
""",
    "15-10": """
USE Trader1
GO
CREATE SERVICE enterTrade
ON QUEUE tradeAckQueue
([//www.develop.com/DMBrokerage/EnterTrade])
USE DMBrokerage
GO
CREATE SERVICE [//www.develop.com/DMBrokerage/TradeEntryService]
ON QUEUE tradeEntryQueue
([//www.develop.com/DMBrokerage/EnterTrade])
""",
    "15-12": """
DECLARE @dh uniqueidentifier;
BEGIN DIALOG CONVERSATION @dh
FROM SERVICE enterTrade
TO SERVICE '//www.develop.com/DMBrokerage/TradeEntryService'
ON CONTRACT [//www.develop.com/DMBrokerage/EnterTrade];
""",
    "15-14": """
DECLARE @dh uniqueidentifier;
DECLARE @msgBody XML
SET @msgBody = '<id>Order1</id>'
BEGIN DIALOG CONVERSATION @dh
FROM SERVICE enterTrade
TO SERVICE '//www.develop.com/DMBrokerage/TradeEntryService'
ON CONTRACT [//www.develop.com/DMBrokerage/EnterTrade];
SEND ON CONVERSATION @dh
MESSAGE TYPE [//www.develop.com/DMBrokerage/TradeEntry]
(@msgBody)
""",
    "15-16": """
RECEIVE TOP(1) conversation_handle, message_body
FROM tradeEntryQueue
""",
    "behind 15-16": """
RECEIVE CAST(message_body AS XML) FROM MyQueue
""",
    "15-17": """
DECLARE @dh UNIQUEIDENTIFIER;
DECLARE @msg VARBINARY(max)
WAITFOR(
RECEIVE TOP(1) @dh=conversation_handle,
@msg=message_body
FROM tradeEntryQueue), TIMEOUT 60000
SELECT @dh, @msg
""",
    "15-18": """
CREATE PROCEDURE tradeEntryProc
AS
DECLARE @dh
DECLARE @msg
DECLARE @ack
DECLARE @cg
WHILE (1=1)
BEGIN
BEGIN TRAN;
SET @cg = NULL;
WAITFOR (
GET CONVERSATION GROUP @cg FROM tradeEntryQueue
), TIMEOUT 10000
IF @cg IS NULL
BEGIN
ROLLBACK TRANSACTION
BREAK
END;
;RECEIVE TOP(1) @dh=conversation_handle, @msg=message_body
FROM tradeEntryQueue
WHERE conversation_group_id = @cg
SET @ack='<id>1</id><ackid>1</ackid>'
;SEND ON CONVERSATION @dh
MESSAGE TYPE [//www.develop.com/DMBrokerage/TradeAck]
(@ack)
END CONVERSATION @dh
COMMIT TRAN
END
""",
    "15-19": """
RECEIVE TOP(1) @dh=conversation_handle,
@msg=message_body, @mt = message_type_name
FROM tradeAckQueue
WHERE conversation_group_id = @cg
END CONVERSATION @dh
COMMIT TRAN
END
""",
    "15-20": """
USE master
GO
CREATE CERTIFICATE TraderCert
AUTHORIZATION sa
FROM file = 'c:\\Certs\\Trader.cer'
WITH PRIVATE_KEY (FILE = 'c:\\Certs\\Trader.pvk',
DECRYPTION_PASSWORD = '[email protected]')
GO
""",
    "15-21": """
USE master
CREATE LOGIN DMBrokersa
WITH PASSWORD = '5#C1yk4*'
CREATE CERTIFICATE RemoteDMBrokerCert
AUTHORIZATION DMBrokersa
FROM file = 'c:\\Certs\\DMBroker.cer'
GO
""",
}

# What is printed, what it is mended to, and why.
MENDS = {
    "15-3": [
        ("COLLECTION\nN'", "COLLECTION TradeAckSchema\nAS N'", "the name and AS are missing"),
        (
            '?>\n"http://www.w3.org',
            '?>\n<xsd:schema xmlns:xsd="http://www.w3.org',
            "the beginning of the schema is missing",
        ),
    ],
    "before 15-8, DMBrokerage": [
        ("RETURN 0\n", "RETURN 0\nGO\n", "a procedure is a batch of its own"),
    ],
    "15-18": [
        ("CREATE PROCEDURE", "ALTER PROCEDURE", "the queue names the empty one that was made before"),
        ("DECLARE @dh\n", "DECLARE @dh uniqueidentifier\n", "a type is missing"),
        ("DECLARE @msg\n", "DECLARE @msg varbinary(max)\n", "a type is missing"),
        ("DECLARE @ack\n", "DECLARE @ack nvarchar(max)\n", "a type is missing"),
        ("DECLARE @cg\n", "DECLARE @cg uniqueidentifier\n", "a type is missing"),
        (
            "'<id>1</id><ackid>1</ackid>'",
            "'<ack><id>1</id><ackid>1</ackid></ack>'",
            "a well-formed document has one root element",
        ),
    ],
    "15-19": [
        (
            "\nRECEIVE",
            """
ALTER PROCEDURE tradeAckProc
AS
DECLARE @dh uniqueidentifier
DECLARE @msg varbinary(max)
DECLARE @mt sysname
DECLARE @cg uniqueidentifier
WHILE (1=1)
BEGIN
BEGIN TRAN;
SET @cg = NULL;
WAITFOR (
GET CONVERSATION GROUP @cg FROM tradeAckQueue
), TIMEOUT 10000
IF @cg IS NULL
BEGIN
ROLLBACK TRANSACTION
BREAK
END;
RECEIVE""",
            "only the end is printed: it begins as 15-18 does",
        ),
    ],
}


def listing(number: str) -> str:
    """Return a listing with its misprints mended."""
    text = PRINTED[number]
    for printed, mended, why in MENDS.get(number, []):
        assert printed in text, (number, printed, why)
        text = text.replace(printed, mended, 1)
    return text
