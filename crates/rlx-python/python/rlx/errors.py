"""Exceptions of RLX: one class for each kind of error, all of them `rlx.Error`.

Each says where it happened, as far as that is known:

- ``message``: the message alone, without place and hint
- ``node``, ``op``: the node of the graph, as in ``"%7 add"``, and its op
- ``origin``: where the node came from: a node of the ONNX file, or a line of a program
- ``device``: the device
- ``hint``: what to do next
"""


class Error(Exception):
    """Any error of RLX."""

    def __init__(self, text="", *, message=None, node=None, op=None, origin=None, device=None, hint=None):
        super().__init__(text)
        self.message = text if message is None else message
        self.node = node
        self.op = op
        self.origin = origin
        self.device = device
        self.hint = hint

    def __reduce__(self):
        return (_again, (type(self), self.args[0] if self.args else "", dict(self.__dict__)))


def _again(kind, text, attributes):
    error = kind(text)
    error.__dict__.update(attributes)
    return error


class ShapeError(Error, ValueError):
    """Shapes do not fit an op's rule."""


class DTypeError(Error, TypeError):
    """An element type that an op or input does not take."""


class InvalidGraphError(Error, ValueError):
    """A graph that breaks a structural rule."""


class ParseError(Error, ValueError):
    """Text or bytes that do not follow their format."""


class FileError(Error, OSError):
    """A file that could not be read or written."""


class MalformedError(Error, ValueError):
    """A file whose contents break its format, or exceed a limit."""


class UnsupportedError(Error, NotImplementedError):
    """An op, attribute or element type that is valid but not implemented."""


class NeedsInputValueError(Error, ValueError):
    """The value of an input is needed to compile (it decides a shape)."""


class InputError(Error, ValueError):
    """An input that is missing, unknown, or of the wrong shape."""


class InvalidValueError(Error, ValueError):
    """A value that an op forbids, such as an index out of range."""


class DimensionError(Error, ValueError):
    """A dynamic dimension without a value, or a value out of its range."""


class DeviceUnavailableError(Error, RuntimeError):
    """A device that is absent, or a build without its backend."""


class OutOfMemoryError(Error, MemoryError):
    """Memory that cannot be had."""


class DeviceError(Error, RuntimeError):
    """A fault the device's driver reported."""


class ConfigError(Error, ValueError):
    """An option or environment variable whose value makes no sense."""


class Cancelled(Error):
    """The caller stopped the call, or its timeout passed."""


class PanicError(Error, RuntimeError):
    """Code that panicked: a kernel, or a callback."""


class InternalError(Error, RuntimeError):
    """A bug in RLX."""


__all__ = [name for name, value in list(globals().items()) if isinstance(value, type) and issubclass(value, Error)]
