"""LiveCodeBench's private tests: JSON, or base64 of zlib of a pickle of a text of JSON.

A pickle is a program, and one in a data file may be anybody's. It is not run here: it is read as a list of
instructions, and only one that pushes a single text and stops is accepted.
"""

import base64
import binascii
import pickletools
import zlib

MAX_BYTES = 1 << 30
_TEXTS = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE"}
_HARMLESS = {"PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "PUT"}


def unpack(field: str) -> str:
    """Return the JSON text of a field.

    Raises:
        ValueError: it is in neither form, over 1 GiB, or its pickle does anything but hold a text.
    """
    field = field.strip()
    if field[:1] in ("", "[", "{"):
        return field
    try:
        packed = base64.b64decode(field, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the private tests are neither JSON nor base64 ({error})") from None
    stream = zlib.decompressobj()
    try:
        data = stream.decompress(packed, MAX_BYTES)
    except zlib.error as error:
        raise ValueError(f"the private tests are not packed by zlib ({error})") from None
    if not stream.eof:
        raise ValueError("the private tests are cut off, or over 1 GiB")
    return text_of_pickle(data)


def text_of_pickle(data: bytes) -> str:
    """Return the text that a pickle holds, without running it.

    Raises:
        ValueError: it holds something else, or is no pickle.
    """
    found: list[str] = []
    try:
        for code, argument, _ in pickletools.genops(data):
            if code.name in _TEXTS:
                found.append(str(argument))
            elif code.name == "STOP":
                break
            elif code.name not in _HARMLESS:
                raise ValueError(f"its pickle has the instruction {code.name}; only a text is admitted")
    except ValueError as error:
        raise ValueError(f"the private tests: {error}") from None
    except Exception as error:  # genops reads hostile bytes with unpack, index and decode
        raise ValueError(f"the private tests are no pickle ({type(error).__name__}: {error})") from None
    if len(found) != 1:
        raise ValueError(f"the private tests: their pickle holds {len(found)} texts, not one")
    return found[0]
