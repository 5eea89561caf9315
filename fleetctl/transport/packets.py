"""The reading of packets, one buffer for all that came in one piece."""

from __future__ import annotations

from typing import Any

from fleetctl.transport.lean import paramiko
from fleetctl.transport.quick import QuickSocket

TAG = 16  # bytes that AES-GCM adds
PACKET_LIMIT = 1 << 20  # OpenSSH sends up to 256 KiB

_Base: Any = paramiko.packet.Packetizer


class Packetizer(_Base):  # type: ignore[misc]
    """paramiko's, with a short way for AES-GCM. It has the same name, so the private ones are the same."""

    __iv_in: Any
    __sequence_number_in: Any
    __received_bytes: Any
    __received_packets: Any
    __received_bytes_overflow: Any

    def __init__(self, sock: Any) -> None:
        super().__init__(sock)
        self._take = sock.take if isinstance(sock, QuickSocket) else None

    def start_handshake(self, timeout: float) -> None:
        """Start no timer thread: the caller's deadline covers the handshake."""

    def read_all(self, n: int, check_rekey: bool = False) -> Any:
        """Return ``n`` bytes."""
        if self._take is not None and not self.__remainder:
            data = self._take(n)
            if data is not None:
                return data
        return super().read_all(n, check_rekey)

    def read_message(self) -> Any:
        """Return the kind of the next message and the message."""
        if not self.__aead_in:
            return super().read_message()
        head = self.read_all(4, check_rekey=True)
        size = int.from_bytes(head, "big")
        if size > PACKET_LIMIT:
            raise paramiko.SSHException(f"a packet of {size} bytes")
        packet = self.__block_engine_in.decrypt(self.__iv_in, self.read_all(size + TAG), head)
        self.__iv_in = self._inc_iv_counter(self.__iv_in)
        payload = packet[1 : size - packet[0]]
        if self.__compress_engine_in is not None:
            payload = self.__compress_engine_in(payload)
        message: Any = paramiko.Message(payload[1:])
        message.seqno = self.__sequence_number_in
        self.__sequence_number_in = (message.seqno + 1) & 0xFFFFFFFF
        self._count(size + TAG + 4)
        return payload[0], message

    def _count(self, size: int) -> None:
        """Note what came; ask for new keys in time, and bear some packets until they are agreed on."""
        self.__received_bytes += size
        self.__received_packets += 1
        if self.__need_rekey:
            self.__received_bytes_overflow += size
            if self.__received_bytes_overflow >= self.REKEY_BYTES_OVERFLOW_MAX:
                raise paramiko.SSHException("Remote transport is ignoring rekey requests")
        elif (
            self.__received_bytes >= self.REKEY_BYTES
            or self.__received_packets >= self.REKEY_PACKETS
        ):
            self.__received_bytes_overflow = 0
            self._trigger_rekey()
