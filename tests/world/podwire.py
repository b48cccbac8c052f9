"""What a pod of the test world puts on the wire: heads, floods, resets."""

import asyncio
import socket
import struct
from collections.abc import Mapping
from datetime import timedelta


def write_head(writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str]) -> None:
    """Write the first line and the headers of an answer."""
    lines = [f"HTTP/1.1 {status} Because", "Connection: close"]
    lines += [f"{key}: {value}" for key, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))


async def left(reader: asyncio.StreamReader, limit: timedelta | None) -> bool:
    """Say whether the caller went away within the time; without a limit it is waited for."""
    try:
        async with asyncio.timeout(limit.total_seconds() if limit else None):
            while await reader.read(4096):
                pass
    except TimeoutError:
        return False
    return True


def reset(writer: asyncio.StreamWriter) -> None:
    """Break a connection."""
    raw = writer.get_extra_info("socket")
    # No lingering: what the caller sees is a reset, not an orderly end.
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
