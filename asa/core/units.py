"""Durations, memory sizes and shares, read from what people write.

Inside ASA a time is a float in seconds and a memory size an int in bytes; words and suffixes end here.
"""

from __future__ import annotations

import datetime
import math
import re
from datetime import timedelta

from asa.core.errors import InvalidInput

HOUR, DAY, WEEK = 3600.0, 86400.0, 604800.0
"""How long they are [s]."""

MIB = 2**20
"""How much it is [bytes]."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": HOUR, "d": DAY, "w": WEEK}
_SPELLED = {"sec": "s", "second": "s", "min": "m", "minute": "m", "hour": "h", "hr": "h", "day": "d", "week": "w"}
_TWO_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)\s*")
_CLOCK = re.compile(r"(?:(\d{1,15})-)?(\d{1,15}):(\d{1,2})(?::(\d{1,2}))?")
_TWO_READINGS = re.compile(r"(\d{1,15}):(\d{1,2})")
_BYTES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT](?:I?B)?|B)", re.IGNORECASE)
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def duration(value: float | str | timedelta, *, what: str = "duration", endless: bool = False) -> float:
    """Seconds [s] of a number of seconds, a ``timedelta``, ``"1h30m"``, ``"90 min"``, ``"HH:MM:SS"``, ``"D-HH:MM:SS"``.

    A bare number in quotes is refused: batch systems read it as minutes, people as seconds. So is ``"1:30"``: Slurm
    reads it as minutes and seconds, people as hours and minutes. Infinity is one only where that is said to be
    `endless`.

    Raises
    ------
    InvalidInput
        When `value` is not a duration, not finite or not positive.

    Examples
    --------
    >>> duration("1h30m"), duration("02:00:00"), duration("1-00:00:00"), duration(90), duration("250ms")
    (5400.0, 7200.0, 86400.0, 90.0, 0.25)
    """
    seconds = math.nan
    if isinstance(value, str) and (parts := _TWO_READINGS.fullmatch(value.strip())):
        first, last = int(parts[1]), int(parts[2])
        raise InvalidInput(
            f"{what} {value!r} has two readings: Slurm's, {first} min {last} s, and {first} h {last} min: write "
            f"'{first}m{last}s' or '{first}h{last}m'"
        )
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        seconds = _from_text(value.strip().lower())
    if not (seconds > 0 and (math.isfinite(seconds) or endless)):
        raise InvalidInput(
            f"{what} {value!r} is not a positive duration: write '90s', '30m', '1h30m', '2d', 'HH:MM:SS' or "
            "'D-HH:MM:SS', or, in Python, seconds as a number"
        )
    return seconds


def _from_text(text: str) -> float:
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return days * 86400.0 + hours * 3600.0 + minutes * 60.0 + seconds
    total, position = 0.0, 0
    while part := _PART.match(text, position):
        word = part[2]
        unit = word if word in _SECONDS else _SPELLED.get(word.removesuffix("s"), "")
        if not unit:
            return math.nan
        total += float(part[1]) * _SECONDS[unit]
        position = part.end()
    return total if text and position == len(text) else math.nan


def clock(seconds: float) -> str:
    """``HH:MM:SS`` or ``D-HH:MM:SS`` of a duration [s], rounded up to whole seconds.

    >>> clock(5400), clock(90000.2)
    ('01:30:00', '1-01:00:01')
    """
    whole = math.ceil(seconds)
    days, rest = divmod(whole, 86400)
    text = f"{rest // 3600:02d}:{rest % 3600 // 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def brief(seconds: float) -> str:
    """A duration [s] as people say it: two leading units at most.

    >>> brief(3e-5), brief(0.25), brief(42), brief(125), brief(7260), brief(59.999)
    ('0 s', '0.25 s', '42 s', '2 min 5 s', '2 h 1 min', '1 min')
    """
    if seconds < 60 and (few := f"{round(seconds, 2) + 0.0:.3g}") != "60":
        return f"{few} s"
    whole = round(seconds)
    size, name, small, small_name = next(units for units in _TWO_UNITS if whole >= units[0])
    rest = whole % size // small
    return f"{whole // size} {name}" + (f" {rest} {small_name}" if rest else "")


def moment(text: str, zone: datetime.tzinfo) -> float:
    """Time [s since the epoch] of a number of seconds, or of an ISO date and time in `zone`; NaN for anything else.

    >>> moment("2024-03-01T12:00:00", datetime.UTC), moment("1709294400", datetime.UTC), moment("None", datetime.UTC)
    (1709294400.0, 1709294400.0, nan)
    """
    if text.isdecimal():
        return float(text) or math.nan  # 0 is Slurm's and PBS's word for never
    try:
        found = datetime.datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def check_number(what: str, value: float, least: float, *, above: bool = False, whole: bool = False) -> None:
    """Refuse all but a finite number of at least `least`, or `above` that, which is `whole` where that is wanted.

    Raises
    ------
    InvalidInput
        With `what` was given, its value, and what was expected.
    """
    kinds = int if whole else int | float
    fits = isinstance(value, kinds) and not isinstance(value, bool) and least <= value < math.inf
    if not fits or (above and value == least):
        how = "above" if above else "of at least"
        raise InvalidInput(f"{what}={value!r}: a {'whole' if whole else 'finite'} number {how} {least:g} expected")


def memory(value: int | str) -> int:
    """Bytes from ``"512M"``, ``"4G"``, ``"1.5 TiB"`` (powers of 1024, as batch systems count), or ``"4096B"``.

    A bare number is refused, quoted or not: batch systems read it as megabytes, programs as bytes, people as gigabytes.

    Raises
    ------
    InvalidInput
        When `value` is not a positive memory size, or has no unit.

    Examples
    --------
    >>> memory("4G"), memory("1.5 KiB"), memory("1000B")
    (4294967296, 1536, 1000)
    """
    size, text = 0, str(value).strip()
    if isinstance(value, str) and (match := _MEMORY.fullmatch(text)):
        size = int(float(match[1]) * _BYTES[match[2].upper().rstrip("IB")])
    if size <= 0:
        if not isinstance(value, bool) and _NUMBER.fullmatch(text) and float(text) > 0:
            raise InvalidInput(
                f"memory {value!r} has no unit: write '{text}G', '{text}M', or '{text}B' for bytes, as in f'{{size}}B'"
            )
        raise InvalidInput(f"memory {value!r} is not a positive memory size: write it like '512M', '4G', '1T', '4096B'")
    return size


def size(count: int) -> str:
    """Bytes as people say them.

    >>> size(512), size(5 * 2**20), size((3 << 30) - 1), size((1 << 20) - 1)
    ('512 B', '5 MiB', '3 GiB', '1 MiB')
    """
    power = min(max(count.bit_length() - 1, 0) // 10, len(_SIZES) - 1)
    power += power + 1 < len(_SIZES) and count / 1024**power >= 1023.5
    return f"{count / 1024**power:.4g} {_SIZES[power]}"


def share(value: float | str, *, what: str = "share", most: float = 1.0) -> float:
    """A share from 0 to `most`, of a number or as in ``"3%"``; infinite for shares of what may be exceeded.

    Raises
    ------
    InvalidInput
        When `value` is none, or out of these bounds, or above 1 without a per cent sign: 3 may have meant 3 %.

    Examples
    --------
    >>> share("3%"), share("0.5"), share(0.03), share("150%", most=math.inf)
    (0.03, 0.5, 0.03, 1.5)
    """
    text = str(value).strip()
    try:
        found = float(text.removesuffix("%").rstrip()) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        found = math.nan
    if not (0 <= found <= most and math.isfinite(found)):
        bounds = "of at least 0" if most == math.inf else f"from 0 to {most:g}"
        raise InvalidInput(f"{what} {value!r} is not a share {bounds}: write one like '3%' or 0.03")
    if found > 1 and not text.endswith("%"):
        raise InvalidInput(f"{what} {value!r} would be {100 * found:g} %: write '{text}%' or '{100 * found:g}%'")
    return found
