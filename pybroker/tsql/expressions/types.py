"""T-SQL's types here, and what a conversion between two of them becomes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Callable


class Unfaithful(Exception):  # noqa: N818 - what it is, before it has a place
    """What has no faithful form; who knows the place adds it."""


class Family(Enum):
    """What decides how a value is added, compared and converted."""

    TEXT = "a text"
    INTEGER = "a whole number"
    DECIMAL = "a decimal number"
    FLOAT = "a floating-point number"
    BIT = "a bit"
    BINARY = "a binary"
    UUID = "a uniqueidentifier"
    XML = "XML"
    DATETIME = "a datetime"
    DATETIME2 = "a datetime2"
    DATE = "a date"
    TIME = "a time"
    OFFSET = "a datetimeoffset"
    NULL = "NULL"
    UNKNOWN = "a value of unknown type"


NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL, Family.FLOAT, Family.BIT})
MOMENTS = frozenset({Family.DATETIME, Family.DATETIME2, Family.DATE, Family.TIME, Family.OFFSET})


@dataclass(frozen=True, slots=True)
class Type:
    """A type as PostgreSQL has it.

    Attributes:
        sql: its name, with its length.
        length: of a text or a binary; None is without a limit.
        padded: whether blanks fill a text up to its length.
        literal: the text of a literal, whose type PostgreSQL finds by itself.
        money: whether it has the four decimals of money, and is shown with two.
        is_made: whether it is of an IDENTITY or computed column, which INSERT gives no value.
        any_case: whether = and IN match it in any case: the names of objects in the catalog.
    """

    sql: str
    family: Family
    length: int | None = None
    padded: bool = False
    literal: str | None = None
    money: bool = False
    is_made: bool = field(default=False, compare=False)
    any_case: bool = field(default=False, compare=False)


UNKNOWN = Type("unknown", Family.UNKNOWN)
NULL = Type("unknown", Family.NULL)
INTEGER = Type("integer", Family.INTEGER)
BIGINT = Type("bigint", Family.INTEGER)
DECIMAL = Type("numeric", Family.DECIMAL)
FLOAT = Type("double precision", Family.FLOAT)
IDENTITY = Type("numeric(38,0)", Family.DECIMAL)
BIT = Type("smallint", Family.BIT)
TEXT = Type("text", Family.TEXT)
NAME = Type("text", Family.TEXT, any_case=True)
BINARY = Type("bytea", Family.BINARY)
UUID = Type("uuid", Family.UUID)
XML = Type("xml", Family.XML)
DATETIME = Type("timestamp(3)", Family.DATETIME)
DATETIME2 = Type("timestamp", Family.DATETIME2)
DATE = Type("date", Family.DATE)
TIME = Type("time", Family.TIME)
OFFSET = Type("timestamp with time zone", Family.OFFSET)

_FIXED = {
    "bigint": BIGINT,
    "bit": BIT,
    "date": DATE,
    "datetime": DATETIME,
    "double precision": FLOAT,
    "float": FLOAT,
    "image": BINARY,
    "int": INTEGER,
    "integer": INTEGER,
    "money": Type("numeric(19,4)", Family.DECIMAL, money=True),
    "ntext": TEXT,
    "real": Type("real", Family.FLOAT),
    "smallint": Type("smallint", Family.INTEGER),
    "smallmoney": Type("numeric(10,4)", Family.DECIMAL, money=True),
    "sysname": Type("varchar(128)", Family.TEXT, length=128),
    "text": TEXT,
    "tinyint": Type("smallint", Family.INTEGER),
    "uniqueidentifier": UUID,
    "xml": XML,
}
# sqlglot has one name for several of ours.
_NAMES_OF_SQLGLOT = {
    "decimal": "decimal",
    "timestamptz": "datetimeoffset",
    "utinyint": "tinyint",
    "uuid": "uniqueidentifier",
}
_WRITTEN = re.compile(
    r"\[?(?P<name>[A-Za-z_]\w*(?:\s+(?:varying|precision))*)\]?\s*"
    r"(?:\(\s*(?P<first>\d{1,9}|max)\s*(?:,\s*(?P<second>\d{1,9})\s*)?\))?",
    re.IGNORECASE,
)
_SCHEMA = re.compile(r"(?:\[sys\]|sys)\s*\.\s*", re.IGNORECASE)
# A variable without a length has one character, a cast without one 30.
_CAST_LENGTH, _DECLARED_LENGTH = 30, 1
_OF_TIME = {
    "datetime2": ("timestamp", "", Family.DATETIME2),
    "time": ("time", "", Family.TIME),
    "datetimeoffset": ("timestamp", " with time zone", Family.OFFSET),
}
# PostgreSQL counts microseconds, SQL Server has a digit more.
_DIGITS = 6


def read_type(written: str, *, cast: bool = False) -> Type:
    """Return the type that a declaration names.

    Args:
        written: as in `nvarchar(max)`.
        cast: whether it stands in CAST, where a text without a length has 30 characters.

    Raises:
        Unfaithful: for a type that PostgreSQL has not.
    """
    text = _SCHEMA.sub("", written.strip(), count=1)
    found = _WRITTEN.fullmatch(text)
    if found is None:
        raise Unfaithful(f"the type {written.strip()} is not known here: write one of SQL Server's own")
    name = " ".join(found["name"].lower().split())
    return _type(name, found["first"], found["second"], cast=cast)


def of_node(node: exp.DataType) -> Type:
    """Return the type that sqlglot read in CAST or CONVERT."""
    kind = node.args.get("kind")
    if isinstance(kind, exp.Expr):
        kind = kind.sql()
    if kind:
        return read_type(str(kind), cast=True)
    name = str(getattr(node.this, "value", node.this)).lower()
    arguments = [one.this.name for one in node.expressions]
    first, second = (*arguments, None, None)[:2]
    return _type(_NAMES_OF_SQLGLOT.get(name, name), first, second, cast=True)


def _type(name: str, first: str | None, second: str | None, *, cast: bool) -> Type:
    name = {
        "dec": "decimal",
        "numeric": "decimal",
        "character": "char",
        "character varying": "varchar",
        "char varying": "varchar",
        "national char": "nchar",
        "binary varying": "varbinary",
        "timestamp": "rowversion",
    }.get(name, name)
    if name in _FIXED and (first is None or name == "float"):
        return _FIXED[name]
    default = _CAST_LENGTH if cast else _DECLARED_LENGTH
    length = None if first in (None, "max", "MAX", "Max") else int(first or 0)
    match name:
        case "varchar" | "nvarchar" | "char" | "nchar" if first is not None and length is None:
            return TEXT
        case "varchar" | "nvarchar" | "char" | "nchar":
            length = default if length is None else length
            return Type(f"varchar({length})", Family.TEXT, length, padded=name in ("char", "nchar"))
        case "varbinary":
            return (
                BINARY
                if first is not None and length is None
                else Type("bytea", Family.BINARY, length or default)
            )
        case "smalldatetime":
            raise Unfaithful("smalldatetime rounds to minutes: write datetime2(0)")
        case "binary":
            raise Unfaithful("binary(n) fills up with zeros: write varbinary(n)")
        case "decimal":
            return Type(f"numeric({first or 18},{second or 0})", Family.DECIMAL)
        case "datetime2" | "time" | "datetimeoffset":
            sql, zone, family = _OF_TIME[name]
            digits = "" if length is None or length > _DIGITS else f"({length})"
            return Type(f"{sql}{digits}{zone}", family)
    raise Unfaithful(f"the type {name} is not known here: see the table of types in docs/tsql.md")


def cast(value: str, type_: Type | str) -> str:
    """Write a cast in PostgreSQL's SQL."""
    return f"cast({value} as {type_ if isinstance(type_, str) else type_.sql})"


def convert(value: str, source: Type, target: Type) -> str:
    """Write what a value becomes when SQL Server converts it, on assignment or by CAST.

    Raises:
        Unfaithful: PostgreSQL can't give what SQL Server would.
    """
    if source.family is Family.NULL:
        return value
    if target.family is Family.UNKNOWN:
        if source.family is Family.BINARY:
            raise Unfaithful(
                "the type of the column that gets a binary is not known:"
                " let its CREATE TABLE stand in these scripts, or be there when they run"
            )
        return value
    if source.family is Family.UNKNOWN:
        if target.family in (Family.TEXT, Family.BINARY, Family.XML, Family.INTEGER, Family.BIT):
            raise Unfaithful(
                f"whether {value} converts here as in SQL Server depends on its type, which is not known:"
                " let its CREATE TABLE stand in these scripts, or be there when they run"
            )
        return cast(value, target)
    if source == target:
        return value
    way = _WAYS.get((source.family, target.family))
    if way is None:
        raise Unfaithful(f"{source.family.value} is not converted to {target.family.value} here")
    return way(value, source, target)


def filled(value: str, source: Type) -> str:
    """Print a text with the blanks of char(n), which PostgreSQL leaves out where it reads such a column."""
    return f"rpad({value}, {source.length})" if source.padded and source.length is not None else value


def _text_to_text(value: str, source: Type, target: Type) -> str:
    if target.length is None:
        return filled(value, source)
    if target.padded:
        return f"rpad({value}, {target.length})"
    value = filled(value, source)
    if source.literal is not None and len(source.literal) <= target.length:
        return value
    if source.length is not None and source.length <= target.length:
        return value
    return cast(value, target)


def _shortened(text: str, target: Type) -> str:
    return _text_to_text(text, TEXT, target)


def _money_to_text(value: str, source: Type, target: Type) -> str:
    if source.money:
        raise Unfaithful("money is shown with two decimals: write CAST(… AS decimal(19, 2)) around it first")
    return _number_to_text(value, source, target)


_WIDTHS = {"smallint": 6, "integer": 11, "bigint": 20}
_PRECISION = re.compile(r"numeric\((\d+)")


def _width(source: Type) -> float:
    """Return how many characters a number has at most."""
    if source.family is Family.BIT:
        return 1
    precision = _PRECISION.match(source.sql)
    # With a sign, a point, and a zero before it.
    return int(precision[1]) + 3 if precision else _WIDTHS.get(source.sql, inf)


def _number_to_text(value: str, source: Type, target: Type) -> str:
    length = target.length
    if length is None:
        return cast(value, "text")
    text = cast(value, "text")
    if length < _width(source):
        # The function of an assignment: it fails at a text that is too long, and CAST would cut digits off.
        text = f'pg_catalog."varchar"({cast(value, "varchar")}, {length + 4}, false)'
    return f"rpad({text}, {length})" if target.padded else text


def _float_to_text(value: str, _source: Type, _target: Type) -> str:
    raise Unfaithful(
        f"SQL Server shows six digits of the floating-point number {value}: CAST it to decimal(p, s) first"
    )


def _datetime_to_text(value: str, source: Type, target: Type) -> str:
    return _shortened(styled(value, source, 0), target)


def _datetime2_to_text(value: str, source: Type, target: Type) -> str:
    return _shortened(styled(value, source, 121), target)


def _text_to_integer(value: str, source: Type, target: Type) -> str:
    if source.literal is not None and not source.literal.strip().lstrip("+-").isdigit():
        raise Unfaithful(f"{value} is no number: SQL Server refuses it, too")
    return cast(value, target)


def _decimal_to_integer(value: str, _source: Type, target: Type) -> str:
    return cast(f"trunc({value})", target)


def _to_bit(value: str, source: Type, _target: Type) -> str:
    if value in ("0", "1"):
        return value
    if source.literal is not None and source.literal.lower() in ("true", "false", "0", "1"):
        return "1" if source.literal.lower() in ("true", "1") else "0"
    if source.family is Family.TEXT:
        whole = cast(f"sign(abs(cast({value} as integer)))", "smallint")
        return f"case lower({value}) when 'true' then 1 when 'false' then 0 else {whole} end"
    return cast(f"sign(abs({value}))", "smallint")


def _to(value: str, _source: Type, target: Type) -> str:
    return cast(value, target)


def _binary_to_binary(value: str, source: Type, target: Type) -> str:
    if target.length is None or (source.length is not None and source.length <= target.length):
        return value
    return f"substr({value}, 1, {target.length})"


def _text_to_binary(value: str, _source: Type, target: Type) -> str:
    return _binary_to_binary(f"convert_to({value}, 'UTF8')", BINARY, target)


def _xml_to_binary(value: str, _source: Type, target: Type) -> str:
    return _text_to_binary(cast(value, "text"), TEXT, target)


def _binary_to_text(value: str, _source: Type, target: Type) -> str:
    return _shortened(f"convert_from({value}, 'UTF8')", target)


def _binary_to_xml(value: str, _source: Type, target: Type) -> str:
    return cast(f"convert_from({value}, 'UTF8')", target)


def _uuid_to_text(value: str, _source: Type, target: Type) -> str:
    text = f"upper({cast(value, 'text')})"
    return (
        text
        if target.length is None or target.length >= len("E7044BCF-CFFF-4526-810B-5A33EB763D0B")
        else (_shortened(text, target))
    )


def _xml_to_text(value: str, _source: Type, target: Type) -> str:
    return _shortened(cast(value, "text"), target)


_WAYS: dict[tuple[Family, Family], Callable[[str, Type, Type], str]] = {
    (Family.TEXT, Family.TEXT): _text_to_text,
    (Family.INTEGER, Family.TEXT): _number_to_text,
    (Family.BIT, Family.TEXT): _number_to_text,
    (Family.DECIMAL, Family.TEXT): _money_to_text,
    (Family.FLOAT, Family.TEXT): _float_to_text,
    (Family.DATETIME, Family.TEXT): _datetime_to_text,
    (Family.DATETIME2, Family.TEXT): _datetime2_to_text,
    (Family.DATE, Family.TEXT): lambda value, _, target: _shortened(
        f"to_char({value}, 'YYYY-MM-DD')", target
    ),
    (Family.UUID, Family.TEXT): _uuid_to_text,
    (Family.BINARY, Family.TEXT): _binary_to_text,
    (Family.XML, Family.TEXT): _xml_to_text,
    (Family.TEXT, Family.INTEGER): _text_to_integer,
    (Family.TEXT, Family.DECIMAL): _to,
    (Family.TEXT, Family.FLOAT): _to,
    (Family.INTEGER, Family.INTEGER): _to,
    (Family.BIT, Family.INTEGER): _to,
    (Family.DECIMAL, Family.INTEGER): _decimal_to_integer,
    (Family.FLOAT, Family.INTEGER): _decimal_to_integer,
    **{
        (one, other): _to
        for one in (Family.INTEGER, Family.BIT, Family.DECIMAL, Family.FLOAT)
        for other in (Family.DECIMAL, Family.FLOAT)
    },
    **{(one, Family.BIT): _to_bit for one in (Family.TEXT, Family.INTEGER, Family.DECIMAL, Family.FLOAT)},
    (Family.BIT, Family.BIT): lambda value, _source, _target: value,
    (Family.BINARY, Family.BINARY): _binary_to_binary,
    (Family.TEXT, Family.BINARY): _text_to_binary,
    (Family.XML, Family.BINARY): _xml_to_binary,
    (Family.TEXT, Family.UUID): _to,
    (Family.UUID, Family.UUID): _to,
    (Family.TEXT, Family.XML): _to,
    (Family.BINARY, Family.XML): _binary_to_xml,
    (Family.XML, Family.XML): _to,
    **{(Family.TEXT, one): _to for one in MOMENTS},
    **{
        (one, other): _to
        for one in MOMENTS
        for other in MOMENTS
        if (one, other) not in ((Family.DATE, Family.TIME), (Family.TIME, Family.DATE))
    },
}

# The styles of CONVERT, as patterns of to_char: days, times, and both.
_DAYS = {
    1: "MM/DD/YY",
    2: "YY.MM.DD",
    3: "DD/MM/YY",
    4: "DD.MM.YY",
    5: "DD-MM-YY",
    6: "DD Mon YY",
    7: "Mon DD, YY",
    10: "MM-DD-YY",
    11: "YY/MM/DD",
    12: "YYMMDD",
    101: "MM/DD/YYYY",
    102: "YYYY.MM.DD",
    103: "DD/MM/YYYY",
    104: "DD.MM.YYYY",
    105: "DD-MM-YYYY",
    106: "DD Mon YYYY",
    107: "Mon DD, YYYY",
    110: "MM-DD-YYYY",
    111: "YYYY/MM/DD",
    112: "YYYYMMDD",
    23: "YYYY-MM-DD",
}
_TIMES = dict.fromkeys((8, 24, 108), "HH24:MI:SS")
_ISO_DAY = dict.fromkeys((20, 120, 21, 25, 121, 126, 127), "YYYY-MM-DD")
# In angle brackets what a blank fills up.
_SHORT_DAY = dict.fromkeys((0, 100), "Mon <DD> YYYY")
_SHORT = dict.fromkeys((0, 100), "Mon <DD> YYYY <HH12>:MIAM")
_SECONDS = {**_DAYS, **_TIMES, **_SHORT, **dict.fromkeys((20, 120), "YYYY-MM-DD HH24:MI:SS")}
_MILLISECONDS = {
    **dict.fromkeys((9, 109), "Mon <DD> YYYY <HH12>:MI:SS:MSAM"),
    **dict.fromkeys((13, 113), "DD Mon YYYY HH24:MI:SS:MS"),
    **dict.fromkeys((14, 114), "HH24:MI:SS:MS"),
}
_FRACTIONS = dict.fromkeys((21, 25, 121), "YYYY-MM-DD HH24:MI:SS")
# Without a fraction of zero.
_ISO = dict.fromkeys((126, 127), 'YYYY-MM-DD"T"HH24:MI:SS')
_PADDED = re.compile(r"(<\w+>)")
_SCALE = re.compile(r"timestamp\((\d)\)")


def styled(value: str, source: Type, style: int) -> str:
    """Write a moment as text in a style of CONVERT.

    Raises:
        Unfaithful: the style is not known for the type.
    """
    pattern = _patterns(source).get(style)
    if pattern is None:
        raise Unfaithful(
            f"style {style} of CONVERT is not known here for {source.family.value}:"
            " write 120 or 112, or CAST it to datetime first"
        )
    parts = [
        f"lpad(to_char({value}, 'FM{part[1:-1]}'), 2)"
        if part.startswith("<")
        else f"to_char({value}, '{part}')"
        for part in _PADDED.split(pattern)
    ]
    written = " || ".join(parts)
    whole = _ISO.get(style)
    if whole is None or whole == pattern or source.family is Family.DATE:
        return written
    shorter = f"to_char({value}, '{whole}')"
    return f"case when {value} = date_trunc('second', {value}) then {shorter} else {written} end"


def _patterns(source: Type) -> dict[int, str]:
    """Return the styles of a type of moments."""
    match source.family:
        case Family.DATE:
            return _DAYS | _ISO_DAY | _SHORT_DAY
        case Family.TIME:
            return _TIMES
        case Family.OFFSET:
            return _DAYS
    fraction = _fraction(source)
    exact = {style: pattern + fraction for style, pattern in (_FRACTIONS | _ISO).items()}
    return _SECONDS | exact | (_MILLISECONDS if source.family is Family.DATETIME else {})


def _fraction(source: Type) -> str:
    if source.family is Family.DATETIME:
        return ".MS"
    scale = _SCALE.match(source.sql)
    if scale is None:
        # SQL Server has a digit more.
        return '.US"0"'
    return "" if scale[1] == "0" else f".FF{scale[1]}"


_OF_DECIMAL = re.compile(r"numeric\((\d+),\s*(\d+)\)")
_WHOLE = {"smallint": 5, "integer": 10, "bigint": 19}
_MOST_DIGITS, _KEPT_DIGITS = 38, 6


def digits_of(type_: Type, sql: str = "") -> tuple[int, int] | None:
    """Return a number's precision and scale as SQL Server counts them; None where nobody knows.

    Args:
        type_: of the number.
        sql: of the number, as a literal has only its own digits.
    """
    if sql.isdigit():
        return len(sql), 0
    found = _OF_DECIMAL.fullmatch(type_.sql)
    if found is not None:
        return int(found[1]), int(found[2])
    if type_.family is Family.BIT:
        return 1, 0
    return (_WHOLE[type_.sql], 0) if type_.sql in _WHOLE and type_.family is Family.INTEGER else None


def decimal(precision: int, scale: int) -> Type:
    """Return the type of a decimal; of more than 38 digits it keeps those before the point."""
    if precision > _MOST_DIGITS:
        whole = precision - scale
        precision, scale = _MOST_DIGITS, max(_MOST_DIGITS - whole, min(scale, _KEPT_DIGITS))
    return Type(f"numeric({precision},{scale})", Family.DECIMAL)


def identity_of(quoted: str, otherwise: str) -> str:
    """Write the value that a table's IDENTITY column got last in this session.

    Args:
        quoted: the table's name in PostgreSQL, as a text.
        otherwise: the value where the table has no such column.
    """
    return (
        f"coalesce((select currval(pg_get_serial_sequence({quoted}, a.attname::text))"
        f" from pg_catalog.pg_attribute a where a.attrelid = to_regclass({quoted}) and a.attidentity <> ''),"
        f" {otherwise})"
    )


def made(type_: Type) -> Type:
    """Return the type of a column that INSERT gives no value."""
    return replace(type_, is_made=True)


def without_literal(type_: Type) -> Type:
    """Return the type of what is computed from a literal."""
    return replace(type_, literal=None, is_made=False)
