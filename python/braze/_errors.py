"""What goes wrong in Braze, as exceptions."""

from . import _native


class Error(Exception):
    """What went wrong, in words; `code` is its stable name, such as "no-such-device"."""

    code: str = ""


class InvalidArgument(Error, ValueError):
    """The caller passed something that cannot be."""


class Unsupported(Error, NotImplementedError):
    """This version, device or processor cannot serve it."""


class ResourceExhausted(Error, MemoryError):
    """Memory or another limit; a retry is possible."""


class DeviceError(Error, RuntimeError):
    """A device or its driver failed."""


class DataLoss(Error):
    """A file is truncated, altered or unreadable."""


class InternalError(Error, RuntimeError):
    """A bug in Braze; please report it."""


class NotFound(Error, FileNotFoundError):
    """A file does not exist."""


# By braze_status.
_KINDS = {
    1: InvalidArgument,
    2: Unsupported,
    3: ResourceExhausted,
    4: DeviceError,
    5: DataLoss,
    6: InternalError,
    7: NotFound,
}


def _make(status: int, code: str, text: str) -> Error:
    error = _KINDS[status](text)
    error.code = code
    return error


_native.set_make_error(_make)
